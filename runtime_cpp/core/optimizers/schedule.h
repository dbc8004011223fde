// How the learning rate changes with the number of updates: MXNet's four schedulers as numbers.
//
// A schedule is chosen by its options, "schedule.NAME.OPTION", named as in MXNet's constructors;
// `learning_rate` is MXNet's base_lr.
//   factor       step, factor, stop_factor_lr
//   multifactor  step.0, step.1, ... (increasing), factor
//   poly         max_update, pwr, final_lr
//   cosine       max_update, final_lr
//   each         warmup_steps, warmup_begin_lr, warmup_final_lr (absent: learning_rate),
//                warmup_constant (1: warmup_begin_lr throughout instead of a line)
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace geomx {

inline constexpr double kLargestCount = 9e15;  // doubles count exactly up to here

class Schedule {
 public:
  virtual ~Schedule() = default;

  // The rate of update number `update` (from 1). REQUIRES: not below an earlier call's.
  double Rate(std::uint64_t update);

  static bool IsOption(const std::string& option) { return option.starts_with("schedule."); }

  // Creates the schedule of the "schedule." options among `options`; returns null if there are
  // none. Throws std::invalid_argument, naming the option that is unknown, missing or out of range.
  static std::unique_ptr<Schedule> Make(const std::map<std::string, double>& options,
                                        double learning_rate);

 protected:
  // The rate after the warm-up.
  virtual double Decayed(std::uint64_t update) = 0;

  std::uint64_t warmup_steps() const { return warmup_steps_; }

 private:
  std::uint64_t warmup_steps_ = 0;
  double warmup_begin_ = 0;
  double warmup_final_ = 0;
  bool warmup_constant_ = false;
};

}  // namespace geomx
