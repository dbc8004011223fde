// Runs the registered tests, or those whose name contains the first argument. Prints slow ones.
#include <chrono>
#include <cstring>

#include "tests/check.h"

constexpr double kSlow = 1.0;  // s

int main(int argc, char** argv) {
  const char* filter = argc > 1 ? argv[1] : "";
  int run = 0;
  for (const auto& test : geomx::check::Tests()) {
    if (test.name.find(filter) == std::string::npos) continue;
    const int before = geomx::check::Failures();
    const auto begun = std::chrono::steady_clock::now();
    test.body();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    if (took.count() > kSlow) std::cerr << "  " << test.name << ": " << took.count() << " s\n";
    ++run;
    if (geomx::check::Failures() != before) std::cerr << "FAILED " << test.name << "\n";
  }
  std::cerr << run << " tests, " << geomx::check::Failures() << " failures\n";
  return geomx::check::Failures() == 0 && run > 0 ? 0 : 1;
}
