// A unit-test harness in one screen: TEST(name) { ... } registers a test, CHECK* report file, line and
// values and let the test go on. `geomx_tests [substring]` runs the tests whose name contains it.
#pragma once

#include <time.h>

#include <cmath>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace geomx::check {

struct Test {
  std::string name;
  void (*body)();
};

inline std::vector<Test>& Tests() {
  static std::vector<Test> tests;
  return tests;
}

inline int& Failures() {
  static int failures = 0;
  return failures;
}

struct Registration {
  Registration(const char* name, void (*body)()) { Tests().push_back({name, body}); }
};

// Not inlined, and with a view of its text: what a check does if it fails is compiled once, and not at
// each of more than a thousand checks, which took an eighth of the tests' compile time.
[[gnu::noinline, gnu::cold]] inline void Report(const char* file, int line, std::string_view what) {
  ++Failures();
  std::cerr << file << ":" << line << ": " << what << "\n";
}
[[gnu::noinline, gnu::cold]] inline void Report(const char* file, int line, const char* what,
                                                const std::string& left, const std::string& right) {
  Report(file, line, what + left + " vs " + right);
}

template <class T>
[[gnu::noinline, gnu::cold]] std::string Show(const T& value) {
  if constexpr (requires(std::ostream& out) { out << value; }) {
    std::ostringstream out;
    out.precision(17);
    out << value;
    return out.str();
  } else {
    return "?";
  }
}

// CHECK_EQ and CHECK_NEAR as functions, because expanding them at every use took a fifth of the tests'
// compile time. They are constructors, whose arguments are evaluated from left to right.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-compare"
struct Equal {
  template <class Left, class Right>
  [[gnu::noinline]] Equal(const char* file, int line, const char* what, const Left& left,
                          const Right& right) {
    if (!(left == right)) Report(file, line, what, Show(left), Show(right));
  }
};
#pragma GCC diagnostic pop

struct Near {
  [[gnu::noinline]] Near(const char* file, int line, const char* what, double left, double right,
                         double tolerance) {
    if (!(std::fabs(left - right) <= tolerance)) {
      Report(file, line, what, Show(left), Show(right));
    }
  }
};

// Returns this thread's minimum processor time of several calls, for ratios that any machine has.
template <class Body>
double LeastSeconds(int calls, Body body) {
  double least = INFINITY;
  for (; calls > 0; --calls) {
    timespec begin{}, end{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    body();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    least = std::fmin(least, static_cast<double>(end.tv_sec - begin.tv_sec) +
                                 1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec));
  }
  return least;
}

}  // namespace geomx::check

#define TEST(name)                                                              \
  static void test_##name();                                                    \
  static ::geomx::check::Registration registration_##name(#name, test_##name); \
  static void test_##name()

#define CHECK(condition)                                                                    \
  do {                                                                                      \
    if (!(condition)) ::geomx::check::Report(__FILE__, __LINE__, "CHECK(" #condition ")"); \
  } while (0)

#define CHECK_EQ(left, right) \
  ::geomx::check::Equal { __FILE__, __LINE__, #left " == " #right ": ", (left), (right) }

#define CHECK_NEAR(left, right, tolerance)                                                       \
  ::geomx::check::Near {                                                                         \
    __FILE__, __LINE__, #left " ~ " #right ": ", static_cast<double>(left),                      \
        static_cast<double>(right), static_cast<double>(tolerance)                               \
  }
