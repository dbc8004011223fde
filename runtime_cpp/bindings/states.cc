// The state of the global servers' optimizers, as a worker fetches and loads it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "core/optimizer_states.h"
#include "io/loop.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx::io {
namespace {

using Part = std::tuple<Key, std::uint32_t, std::uint32_t, std::uint32_t, nb::bytes>;

std::optional<Part> WaitPart(Loop& loop, double timeout_s) {
  std::optional<std::string> text;
  {
    nb::gil_scoped_release unlocked;
    text = loop.WaitState(timeout_s);
  }
  if (!text) return std::nullopt;
  const auto part = ReadPart(*text);
  if (!part) throw std::runtime_error("a malformed state of an optimizer");
  return Part{part->shard.first, part->shard.second, part->part, part->parts,
              nb::bytes(part->bytes.data(), part->bytes.size())};
}

void LoadState(Loop& loop, Key key, std::uint32_t shard, const nb::bytes& saved) {
  const std::string bytes(saved.c_str(), saved.size());
  nb::gil_scoped_release unlocked;
  for (const std::string& text : WriteParts(kLoadVerb, {key, shard}, bytes)) loop.Command(text);
}

}  // namespace
}  // namespace geomx::io

void init_states(nb::module_& m) {
  using namespace geomx;
  using namespace geomx::io;

  m.def("ask_states", [](Loop& loop) { loop.AskStates(); }, "loop"_a,
        nb::call_guard<nb::gil_scoped_release>(),
        "Ask all global servers for the state of their optimizers.");
  m.def("wait_state", &WaitPart, "loop"_a, "timeout_s"_a,
        "The next part that has arrived: (key, shard, part, parts, bytes); None when time is up.");
  m.def("load_state", &LoadState, "loop"_a, "key"_a, "shard"_a, "saved"_a,
        "Have the optimizer of a shard continue from a state, before later pushes.");
}
