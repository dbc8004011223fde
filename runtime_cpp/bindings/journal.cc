// Python's view of the file from which another process can continue a node.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "io/journal_file.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx::io {
namespace {

const JournalBegin& Begun(const JournalFile& journal) {
  if (!journal.begin()) throw std::runtime_error("the journal " + journal.path() + " is empty");
  return *journal.begin();
}

}  // namespace
}  // namespace geomx::io

void init_journal(nb::module_& m) {
  using namespace geomx::io;

  nb::class_<JournalFile>(m, "Journal", R"(The file from which another process can continue a node.

RuntimeError if it cannot be had, another process has it open, or it is damaged.)")
      .def(nb::new_([](const std::string& path) { return std::make_shared<JournalFile>(path); }), "path"_a)
      .def_prop_ro("begun", [](const JournalFile& self) { return self.begin().has_value(); },
                   "Whether there is a node to continue.")
      .def_prop_ro("experiment", [](const JournalFile& self) { return Begun(self).experiment; },
                   "What the scheduler told those who joined.")
      .def_prop_ro("roster",
                   [](const JournalFile& self) {
                     std::map<std::string, std::string> roster;
                     for (const auto& member : Begun(self).roster) roster[member.name] = member.address;
                     return roster;
                   },
                   "Addresses by name, the scheduler's too.")
      .def_prop_ro("port",
                   [](const JournalFile& self) {
                     const std::string& address = Begun(self).address;
                     return std::stoi(address.substr(address.rfind(':') + 1));
                   },
                   "Where the node listened.");
}
