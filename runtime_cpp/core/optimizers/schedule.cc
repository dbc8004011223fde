#include "core/optimizers/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <stdexcept>
#include <vector>

namespace geomx {
namespace {

constexpr double kRequired = std::numeric_limits<double>::quiet_NaN();

using Options = std::map<std::string, double>;

// The options of each schedule, with their defaults; multifactor's list of steps comes on top.
const std::map<std::string, Options>& Known() {
  static const std::map<std::string, Options> known = {
      {"factor", {{"step", kRequired}, {"factor", 1}, {"stop_factor_lr", 1e-8}}},
      {"multifactor", {{"factor", 1}}},
      {"poly", {{"max_update", kRequired}, {"pwr", 2}, {"final_lr", 0}}},
      {"cosine", {{"max_update", kRequired}, {"final_lr", 0}}}};
  return known;
}

const Options kWarmup = {{"warmup_steps", 0}, {"warmup_begin_lr", 0}, {"warmup_constant", 0}};

[[noreturn]] void Refuse(const std::string& complaint) { throw std::invalid_argument(complaint); }

// One schedule's options as given; the rest have their defaults.
struct Given {
  std::string name;
  Options options;
  std::vector<std::uint64_t> steps;

  std::string Full(const std::string& option) const { return "schedule." + name + "." + option; }
  double operator[](const std::string& option) const { return options.at(option); }

  std::uint64_t Count(const std::string& option, double least) const {
    return Whole(option, options.at(option), least);
  }
  std::uint64_t Whole(const std::string& option, double value, double least) const {
    if (!(value >= least && value <= kLargestCount) || value != std::floor(value)) {
      Refuse(Full(option) + " must be a whole number from " +
             std::to_string(static_cast<int>(least)));
    }
    return static_cast<std::uint64_t>(value);
  }
};

std::string Allowed(const std::string& schedule) {
  std::string names = schedule == "multifactor" ? "step.0, step.1, ..." : "";
  for (const auto& options : {Known().at(schedule), kWarmup, Options{{"warmup_final_lr", 0}}}) {
    for (const auto& [name, value] : options) names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

Given Read(const Options& options, double learning_rate) {
  Given given;
  std::map<std::uint64_t, double> steps;
  for (const auto& [full, value] : options) {
    if (!Schedule::IsOption(full)) continue;
    const std::size_t start = full.find('.') + 1;
    const std::size_t dot = full.find('.', start);
    const std::string name = full.substr(start, dot - start);
    const std::string option = dot == std::string::npos ? "" : full.substr(dot + 1);
    if (!Known().contains(name)) {
      Refuse("unknown schedule " + name + "; there is cosine, factor, multifactor, poly");
    }
    if (!given.name.empty() && given.name != name) {
      Refuse("schedules " + given.name + " and " + name + " exclude each other");
    }
    if (given.name.empty()) {
      given.name = name;
      given.options = Known().at(name);
      given.options.insert(kWarmup.begin(), kWarmup.end());
      given.options["warmup_final_lr"] = learning_rate;
    }
    const std::string index = option.starts_with("step.") ? option.substr(5) : "";
    if (name == "multifactor" && !index.empty() && index.size() < 10 &&
        index.find_first_not_of("0123456789") == std::string::npos) {
      steps[std::stoull(index)] = value;
    } else if (given.options.contains(option)) {
      given.options[option] = value;
    } else {
      Refuse("schedule " + name + " has no option " + option + "; it takes " + Allowed(name));
    }
  }
  for (const auto& [option, value] : given.options) {
    if (std::isnan(value)) Refuse(given.Full(option) + " must be given");
  }
  for (const auto& [index, value] : steps) {
    const std::uint64_t step = given.Whole("step." + std::to_string(index), value, 1);
    if (!given.steps.empty() && step <= given.steps.back()) {
      Refuse("the steps of schedule multifactor must increase");
    }
    given.steps.push_back(step);
  }
  return given;
}

double Shrinking(const Given& given) {
  if (!(given["factor"] <= 1)) Refuse(given.Full("factor") + " must be at most 1");
  return given["factor"];
}

class Factor final : public Schedule {
 public:
  Factor(const Given& given, double rate)
      : rate_(rate),
        step_(given.Count("step", 1)),
        factor_(Shrinking(given)),
        least_(given["stop_factor_lr"]) {}

 protected:
  double Decayed(std::uint64_t update) override {
    for (; update > passed_ + step_; passed_ += step_) rate_ = std::max(rate_ * factor_, least_);
    return rate_;
  }

 private:
  double rate_;
  std::uint64_t step_;
  double factor_, least_;
  std::uint64_t passed_ = 0;
};

class MultiFactor final : public Schedule {
 public:
  MultiFactor(const Given& given, double rate)
      : rate_(rate), steps_(given.steps), factor_(Shrinking(given)) {
    if (steps_.empty()) Refuse(given.Full("step.0") + " must be given");
  }

 protected:
  double Decayed(std::uint64_t update) override {
    for (; next_ < steps_.size() && update > steps_[next_]; ++next_) rate_ *= factor_;
    return rate_;
  }

 private:
  double rate_;
  std::vector<std::uint64_t> steps_;
  double factor_;
  std::size_t next_ = 0;
};

// From the learning rate to the final one between the warm-up and `max_update`.
class Gliding : public Schedule {
 public:
  Gliding(const Given& given, double rate)
      : rate_(rate), final_(given["final_lr"]), max_update_(given.Count("max_update", 1)) {
    if (given.Count("warmup_steps", 0) >= max_update_) {
      Refuse(given.Full("warmup_steps") + " must be below max_update");
    }
  }

 protected:
  // The fraction that remains at `position`, from 1 at 0 to 0 at 1.
  virtual double Left(double position) const = 0;

  double Decayed(std::uint64_t update) final {
    const auto done = static_cast<double>(std::min(update, max_update_) - warmup_steps());
    const auto whole = static_cast<double>(max_update_ - warmup_steps());
    return final_ + (rate_ - final_) * Left(done / whole);
  }

 private:
  double rate_, final_;
  std::uint64_t max_update_;
};

class Poly final : public Gliding {
 public:
  Poly(const Given& given, double rate) : Gliding(given, rate), power_(given["pwr"]) {}

 protected:
  double Left(double position) const override { return std::pow(1 - position, power_); }

 private:
  double power_;
};

class Cosine final : public Gliding {
 public:
  using Gliding::Gliding;

 protected:
  double Left(double position) const override {
    return (1 + std::cos(std::numbers::pi * position)) / 2;
  }
};

std::unique_ptr<Schedule> MakeNamed(const Given& given, double rate) {
  if (given.name == "factor") return std::make_unique<Factor>(given, rate);
  if (given.name == "multifactor") return std::make_unique<MultiFactor>(given, rate);
  if (given.name == "poly") return std::make_unique<Poly>(given, rate);
  return std::make_unique<Cosine>(given, rate);
}

}  // namespace

double Schedule::Rate(std::uint64_t update) {
  if (update >= warmup_steps_) return Decayed(update);
  if (warmup_constant_) return warmup_begin_;
  return warmup_begin_ + (warmup_final_ - warmup_begin_) * static_cast<double>(update) /
                             static_cast<double>(warmup_steps_);
}

std::unique_ptr<Schedule> Schedule::Make(const Options& options, double learning_rate) {
  const Given given = Read(options, learning_rate);
  if (given.name.empty()) return nullptr;
  std::unique_ptr<Schedule> made = MakeNamed(given, learning_rate);
  made->warmup_steps_ = given.Count("warmup_steps", 0);
  made->warmup_begin_ = given["warmup_begin_lr"];
  made->warmup_final_ = given["warmup_final_lr"];
  made->warmup_constant_ = given["warmup_constant"] != 0;
  if (made->warmup_begin_ > made->warmup_final_) {
    Refuse(given.Full("warmup_begin_lr") + " must not be above the rate after the warm-up");
  }
  return made;
}

}  // namespace geomx
