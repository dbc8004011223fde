// Runs the registered tests, or those whose name contains the first argument.
#include <cstring>

#include "tests/check.h"

int main(int argc, char** argv) {
  const char* filter = argc > 1 ? argv[1] : "";
  int run = 0;
  for (const auto& test : geomx::check::Tests()) {
    if (test.name.find(filter) == std::string::npos) continue;
    const int before = geomx::check::Failures();
    test.body();
    ++run;
    if (geomx::check::Failures() != before) std::cerr << "FAILED " << test.name << "\n";
  }
  std::cerr << run << " tests, " << geomx::check::Failures() << " failures\n";
  return geomx::check::Failures() == 0 && run > 0 ? 0 : 1;
}
