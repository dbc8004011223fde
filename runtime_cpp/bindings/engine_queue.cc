#include "bindings/engine_queue.h"

#include <dirent.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include "bindings/arrays.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

// Between two looks at the process, and the processor time that others may use meanwhile.
constexpr std::chrono::microseconds kLook{300};
constexpr std::int64_t kStillNs = 10'000;

std::int64_t Read(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

std::int64_t UsedByOthers() {
  return Read(CLOCK_PROCESS_CPUTIME_ID) - Read(CLOCK_THREAD_CPUTIME_ID);
}

// Whether a thread of this process waits: for another thread, a file, the network, the clock. One
// that runs, or waits for a processor or a page, is about to compute.
bool Sleeps(const std::string& thread) {
  std::ifstream file("/proc/self/task/" + thread + "/stat");
  const std::string line((std::istreambuf_iterator<char>(file)), {});
  const std::size_t name_ends = line.rfind(") ");
  if (name_ends == std::string::npos) return true;  // it has ended
  return std::strchr("SITtZX", line[name_ends + 2]) != nullptr;
}

bool OthersSleep() {
  DIR* const threads = opendir("/proc/self/task");
  if (threads == nullptr) return true;
  const std::string own = std::to_string(syscall(SYS_gettid));
  bool asleep = true;
  while (const dirent* each = readdir(threads)) {
    if (each->d_name[0] == '.' || own == each->d_name) continue;
    if (!Sleeps(each->d_name)) {
      asleep = false;
      break;
    }
  }
  closedir(threads);
  return asleep;
}

}  // namespace

void AwaitStillness() {
  static std::mutex one_at_a_time;  // two would see each other look
  const std::scoped_lock lock(one_at_a_time);
  for (int still = 0; still < 2;) {
    const std::int64_t used_ns = UsedByOthers();
    std::this_thread::sleep_for(kLook);
    const bool idle = UsedByOthers() - used_ns < kStillNs;
    still = idle && OthersSleep() ? still + 1 : 0;
  }
}

void EngineQueue::Push(std::uint64_t number, Key key, std::span<const float> value,
                       std::shared_ptr<const void> reader, const io::PushOptions& options) {
  const std::scoped_lock lock(mutex_);
  if (closed_) return;
  pushed_.push_back({number, key, value, std::move(reader), options, used_ns(), Read(CLOCK_MONOTONIC)});
  changed_.notify_all();
}

void EngineQueue::WhenReady(std::uint64_t number, Key key, Round round, Arrived arrived) {
  std::string why;
  {
    const std::scoped_lock lock(mutex_);
    if (!closed_) {
      pulls_.emplace(number, Pull{key, round, std::move(arrived)});
      changed_.notify_all();
      return;
    }
    why = why_;
  }
  arrived({}, why);
}

std::int64_t EngineQueue::used_ns() const {
  const clockid_t waiter = waiter_;
  return Read(CLOCK_PROCESS_CPUTIME_ID) - (waiter == 0 ? 0 : Read(waiter));
}

bool EngineQueue::Wait() {
  clockid_t clock{};
  if (waiter_ == 0 && pthread_getcpuclockid(pthread_self(), &clock) == 0) waiter_ = clock;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || !pushed_.empty() || !pulls_.empty(); });
  return !closed_;
}

std::vector<EngineQueue::Pushed> EngineQueue::Take() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(pushed_, {});
}

std::optional<std::pair<Key, Round>> EngineQueue::Oldest() const {
  const std::scoped_lock lock(mutex_);
  if (pulls_.empty()) return std::nullopt;
  const Pull& oldest = pulls_.begin()->second;
  return std::pair(oldest.key, oldest.round);
}

void EngineQueue::Fill(Key key, Round round, std::span<const float> value) {
  std::vector<Arrived> ended;
  {
    const std::scoped_lock lock(mutex_);
    for (auto pull = pulls_.begin(); pull != pulls_.end();) {
      if (pull->second.key == key && pull->second.round <= round) {
        ended.push_back(std::move(pull->second.arrived));
        pull = pulls_.erase(pull);
      } else {
        ++pull;
      }
    }
  }
  for (const Arrived& arrived : ended) arrived(value, "");
}

void EngineQueue::Close(const std::string& why) {
  std::map<std::uint64_t, Pull> pulls;
  std::vector<Pushed> pushed;  // released after the lock is
  {
    const std::scoped_lock lock(mutex_);
    if (closed_) return;
    closed_ = true;
    why_ = why;
    pulls = std::exchange(pulls_, {});
    pushed = std::exchange(pushed_, {});
    changed_.notify_all();
  }
  for (const auto& [_, pull] : pulls) pull.arrived({}, why);
}

namespace {

// The pushes as tuples: number, key, value, loss, last, used_ns, passed_ns.
nb::list Taken(EngineQueue& queue) {
  nb::list taken;
  for (EngineQueue::Pushed& push : queue.Take()) {
    auto* const reader = new std::shared_ptr<const void>(std::move(push.reader));
    const nb::capsule owner(reader, [](void* held) noexcept {
      // The engine goes on in this thread, and may wait for one that wants the interpreter.
      const nb::gil_scoped_release release;
      delete static_cast<std::shared_ptr<const void>*>(held);
    });
    taken.append(nb::make_tuple(
        push.number, push.key,
        nb::ndarray<nb::numpy, const float, nb::ndim<1>>(push.value.data(), {push.value.size()},
                                                         owner),
        push.options.loss, push.options.last, push.used_ns, push.passed_ns));
  }
  return taken;
}

}  // namespace
}  // namespace geomx

void init_engine_queue(nb::module_& m) {
  using namespace geomx;

  nb::class_<EngineTarget>(m, "EngineTarget", "Where an `MxnetEngine`'s operations go.");
  nb::class_<EngineQueue, EngineTarget>(
      m, "EngineQueue",
      "The pushes and pulls that MXNet's engine has executed, in the process of a simulated worker.")
      .def(nb::init<>())
      .def("wait", &EngineQueue::Wait, nb::call_guard<nb::gil_scoped_release>(),
           "Wait until there is a push that was not taken or a pull that was not filled; return "
           "False if the queue is closed.")
      .def("take", &Taken,
           "Return the pushes since the last call: number in the order of the script, key, value, "
           "loss, whether it is the last, and when it was executed: `used_ns` and the monotonic "
           "clock. The engine may overwrite a value when its array is released.")
      .def_prop_ro("used_ns", &EngineQueue::used_ns,
                   "Processor time of the process but for the thread that calls `wait`.")
      .def("oldest", &EngineQueue::Oldest,
           "Return key and round of the pull that the script made first, of those that wait.")
      .def(
          "fill",
          [](EngineQueue& self, Key key, Round round, const ConstHostArray& value) {
            const std::span<const float> values(value.data(), value.size());
            const nb::gil_scoped_release release;
            self.Fill(key, round, values);
          },
          "key"_a, "round"_a, "value"_a, "End the pulls of this round of a key, and of earlier ones.")
      .def("close", &EngineQueue::Close, "why"_a, nb::call_guard<nb::gil_scoped_release>(),
           "End all pulls, and all later ones, with an error.");
  m.def("await_stillness", &AwaitStillness, nb::call_guard<nb::gil_scoped_release>(),
        "Wait until all threads of this process but the calling one sleep.");
}
