// Calls into a plugin's Python objects: with the interpreter lock, timed, and with errors that name
// the plugin.
//
// All calls of the core into Python on the data path go through `Guarded`. It measures the time of
// each plugin's calls and their wait for the lock (live runs report it), records the current call
// of each thread (a watchdog ends those that do not return), and converts exceptions to a
// `PluginFailure` that names plugin, hook, class and method.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <typeinfo>
#include <utility>

#include "core/plugin_failure.h"
#include "core/types.h"

namespace geomx {

// A plugin's object and its label ("accel NAME: HOOK"); may be destroyed on any thread.
class PythonObject {
 public:
  PythonObject(nanobind::object object, std::string label)
      : object_(std::move(object)), label_(std::move(label)) {}
  PythonObject(const PythonObject&) = delete;
  PythonObject& operator=(const PythonObject&) = delete;
  ~PythonObject() {
    if (!Py_IsInitialized()) {
      object_.release();  // the interpreter took its memory with it
      return;
    }
    nanobind::gil_scoped_acquire lock;
    object_.reset();
  }
  const nanobind::object& get() const { return object_; }
  const std::string& label() const { return label_; }
  bool Has(const char* method) const { return nanobind::hasattr(object_, method); }
  // A deep copy. REQUIRES: the interpreter lock.
  nanobind::object Copy() const {
    return nanobind::module_::import_("copy").attr("deepcopy")(object_);
  }

 private:
  nanobind::object object_;
  std::string label_;
};

inline std::string NameOf(nanobind::handle object) {
  return nanobind::cast<std::string>(object.type().attr("__name__"));
}

// What breaks the contract "must return `wanted`". REQUIRES: the interpreter lock.
inline std::invalid_argument MustReturn(const char* wanted, nanobind::handle got) {
  const nanobind::object words = nanobind::repr(got).attr("split")();
  std::string text = nanobind::cast<std::string>(nanobind::str(" ").attr("join")(words));
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return std::invalid_argument(std::string("must return ") + wanted + ", not " + text);
}

// The items of a list, tuple or other iterable; throws what `MustReturn` makes for anything else.
// Errors of the plugin's own iteration, as of a generator, remain its own. REQUIRES: the interpreter lock.
inline nanobind::tuple ItemsOf(nanobind::handle answer, const char* wanted, std::size_t least = 0) {
  if (!nanobind::hasattr(answer, "__iter__")) throw MustReturn(wanted, answer);
  auto items = nanobind::steal<nanobind::tuple>(PySequence_Tuple(answer.ptr()));
  if (!items.is_valid()) throw nanobind::python_error();
  if (items.size() < least) throw MustReturn(wanted, answer);
  return items;
}

// The exception by which a codec refuses bytes. REQUIRES: the interpreter lock.
inline nanobind::object RefusedType() {
  return nanobind::module_::import_("geomx.errors").attr("Refused");
}

// The cost of this process's calls into Python, by plugin, and the calls under way.
class Ledger {
 public:
  using Clock = std::chrono::steady_clock;
  struct Cost {
    std::uint64_t calls = 0;
    double seconds = 0;  // inside Python
    double waited = 0;   // for the interpreter lock
  };
  struct Call {
    std::string what;
    Clock::time_point since;
    unsigned long thread = 0;   // Python's thread id
    std::uint64_t number = 0;   // identifies the call
  };

  static Ledger& Instance() {
    static Ledger ledger;
    return ledger;
  }

  void Begin(std::string what) {
    const std::lock_guard guard(mutex_);
    calls_[std::this_thread::get_id()] = {std::move(what), Clock::now(), PyThread_get_thread_ident(),
                                          ++begun_};
  }
  void End(const std::string& label, Clock::duration waited, Clock::duration took) {
    const std::lock_guard guard(mutex_);
    calls_.erase(std::this_thread::get_id());
    Cost& cost = costs_[label];
    ++cost.calls;
    cost.seconds += std::chrono::duration<double>(took).count();
    cost.waited += std::chrono::duration<double>(waited).count();
  }
  std::map<std::string, Cost> costs() const {
    const std::lock_guard guard(mutex_);
    return costs_;
  }
  std::map<std::thread::id, Call> calls() const {
    const std::lock_guard guard(mutex_);
    return calls_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Cost> costs_;
  std::map<std::thread::id, Call> calls_;
  std::uint64_t begun_ = 0;
};

// One call's entry in the ledger, however it ends.
class Entry {
 public:
  explicit Entry(const std::string& label, std::string what) : label_(label) {
    Ledger::Instance().Begin(std::move(what));
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  ~Entry() {
    Ledger::Instance().End(label_, locked_ - asked_, Ledger::Clock::now() - locked_ - apart_);
  }
  void Locked() { locked_ = Ledger::Clock::now(); }
  // The lock was released for this long in between.
  void Apart(Ledger::Clock::duration duration) { apart_ += duration; }

 private:
  const std::string& label_;
  Ledger::Clock::time_point asked_ = Ledger::Clock::now();
  Ledger::Clock::time_point locked_ = asked_;
  Ledger::Clock::duration apart_{};
};

// Calls `function` with the lock. `wanted` describes the allowed results of `method`, for errors.
template <class Function>
auto Guarded(const PythonObject& held, const char* method, const char* wanted, Function&& function) {
  Entry entry(held.label(), held.label() + ": " + method);
  // Ctrl-C and the watchdog interrupt threads of Python only. On other threads, the plugin itself has raised it.
  const bool interruptible = PyGILState_GetThisThreadState() != nullptr;
  nanobind::gil_scoped_acquire lock;
  entry.Locked();
  const auto blame = [&](const std::string& text) {
    return PluginFailure((held.label().empty() ? "" : held.label() + ": ") + NameOf(held.get()) +
                         "." + method + text);
  };
  try {
    if constexpr (std::is_invocable_v<Function, Entry&>) {
      return function(entry);
    } else {
      return function();
    }
  } catch (nanobind::python_error& error) {
    if (interruptible && error.matches(PyExc_KeyboardInterrupt)) throw;
    if (std::string_view(method) == "decode" && error.matches(RefusedType())) {
      throw Refusal(blame(std::string(" refused the bytes: ") +
                          nanobind::str(error.value()).c_str()).what());
    }
    throw blame(": " + NameOf(error.value()) + ": " + nanobind::str(error.value()).c_str());
  } catch (const std::bad_cast&) {
    throw blame(std::string(" must return ") + wanted);
  } catch (const std::invalid_argument& broken) {  // the result breaks the contract
    throw blame(std::string(" ") + broken.what());
  }
}

// Makes deep copies of a prototype.
template <class Base, class Product, class Made>
class Copies final : public Base {
 public:
  Copies(nanobind::object prototype, const std::string& label) : prototype_(std::move(prototype), label) {}
  std::unique_ptr<Product> Make(const ShardInfo&) const override {
    return Guarded(prototype_, "__deepcopy__", "a copy", [&]() -> std::unique_ptr<Product> {
      return std::make_unique<Made>(prototype_.Copy(), prototype_.label());
    });
  }

 private:
  PythonObject prototype_;
};

}  // namespace geomx
