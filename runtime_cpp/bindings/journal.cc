// Python's view of the file from which another process can continue a node.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "io/clock.h"
#include "io/journal_file.h"
#include "io/loop.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx::io {
namespace {

const JournalBegin& Begun(const JournalFile& journal) {
  if (!journal.begin()) throw std::runtime_error("the journal " + journal.path() + " is empty");
  return *journal.begin();
}

// The latest time of any record, after all of them have been read.
double LastTime(JournalFile& journal) {
  Time last = 0;
  journal.Read([&](Bytes body, const Payload&) { last = std::max(last, TimeOf(body).value_or(0)); });
  return Seconds(last);
}

void Note(Loop& loop, const std::string& text, const std::vector<nb::bytes>& state) {
  std::vector<std::string> parts;
  for (const nb::bytes& part : state) parts.emplace_back(part.c_str(), part.size());
  loop.Note(text, std::move(parts));
}

using Vector = nb::ndarray<nb::numpy, float, nb::ndim<1>>;
using Past = std::tuple<std::vector<std::string>, std::vector<nb::bytes>, std::map<Key, Round>,
                        std::map<Key, Vector>>;

std::optional<Past> PastOf(Loop& loop) {
  auto resumed = std::make_unique<Resumed>();
  {
    nb::gil_scoped_release unlocked;
    *resumed = loop.TakeResumed();
  }
  if (!resumed->noted) return std::nullopt;
  Past past{resumed->notes, {}, resumed->rounds, {}};
  for (const std::string& part : resumed->state) std::get<1>(past).emplace_back(part.data(), part.size());
  Resumed* const kept = resumed.release();
  const nb::capsule owner(kept, [](void* data) noexcept { delete static_cast<Resumed*>(data); });
  for (auto& [key, value] : kept->values) {
    std::get<3>(past).emplace(key, Vector(value.data(), {value.size()}, owner));
  }
  return past;
}

using Saved = std::tuple<Key, std::uint32_t, Round, std::optional<Vector>, nb::bytes>;

std::vector<Saved> Reopen(Loop& loop, const NodeConfig& config, const std::shared_ptr<JournalFile>& journal) {
  std::vector<SavedShard> saved;
  {
    nb::gil_scoped_release unlocked;
    saved = loop.Reopen(config, journal);
  }
  std::vector<Saved> shards;
  for (const SavedShard& shard : saved) {
    std::optional<Vector> value;
    if (shard.value) {
      auto* const kept = new Buffer(*shard.value);
      const nb::capsule owner(kept, [](void* data) noexcept { delete static_cast<Buffer*>(data); });
      value.emplace(kept->data(), std::initializer_list<std::size_t>{kept->size()}, owner);
    }
    shards.emplace_back(shard.key, shard.shard, shard.round, std::move(value),
                        nb::bytes(shard.optimizer.data(), shard.optimizer.size()));
  }
  return shards;
}

}  // namespace
}  // namespace geomx::io

void init_journal(nb::module_& m) {
  using namespace geomx::io;

  nb::class_<JournalFile>(m, "Journal", R"(The file from which another process can resume a node.

RuntimeError if it cannot be had, another process has it open, or it is damaged.)")
      .def(nb::new_([](const std::string& path) { return std::make_shared<JournalFile>(path); }), "path"_a)
      .def_prop_ro("path", &JournalFile::path)
      .def_prop_ro("begun", [](const JournalFile& self) { return self.begin().has_value(); },
                   "Whether it contains a node to resume.")
      .def_prop_ro("cut", [](const JournalFile& self) { return Begun(self).snapshot; },
                   "Whether it begins with a snapshot of its node.")
      .def_prop_ro("experiment", [](const JournalFile& self) { return Begun(self).experiment; },
                   "The experiment's text from the scheduler.")
      .def_prop_ro("roster",
                   [](const JournalFile& self) {
                     std::map<std::string, std::string> roster;
                     for (const auto& member : Begun(self).roster) roster[member.name] = member.address;
                     return roster;
                   },
                   "Addresses by name, including the scheduler's.")
      .def_prop_ro("port",
                   [](const JournalFile& self) {
                     const std::string& address = Begun(self).address;
                     return std::stoi(address.substr(address.rfind(':') + 1));
                   },
                   "The port of the node.")
      .def("keep",
           [](JournalFile& self, double log_mb, bool synced) {
             self.set_least(static_cast<std::uint64_t>(log_mb * 1e6));
             self.set_synced(synced);
           },
           "log_mb"_a, "synced"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Set the megabytes by which the file may grow before a snapshot replaces it, and whether records are "
           "forced to the disk.")
      .def("last_s", &LastTime, nb::call_guard<nb::gil_scoped_release>(),
           "Read all records; return the latest time of them, in seconds of the run's clock.");

  m.def("note", &Note, "loop"_a, "text"_a, "state"_a,
        "Record the progress and the state of this worker's application, if there is a journal.");
  m.def("resumed", &PastOf, "loop"_a,
        "Return the progress of the killed process' application: (its notes, the state of the latest one, "
        "and the rounds and values of keys at that time); None without notes. Declare all tensors before, "
        "and repeat the calls after the note; those that were made have no effect.");
  m.def("reopened", &Reopen, "loop"_a, "config"_a, "journal"_a,
        "Return what a server holds of every shard, by its journal, without running it: (key, shard, round, "
        "value or None, state of the optimizer).");
  m.def("set_clock_ahead", [](double seconds) { clock_ahead = geomx::Nanoseconds(seconds); }, "seconds"_a,
        "Set the seconds by which the run's clock is ahead of time.monotonic(); before any loop exists.");
  m.def("clock_s", [] { return Seconds(Now()); }, "Return the time of the run's clock in seconds.");
}
