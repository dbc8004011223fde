// The base of all optimizers, and the functions that create them. Only optimizer.cc and the
// optimizers' own sources include this.
//
// Their state and parameters are here; the arithmetic is in kernels/steps.h.
#pragma once

#include <limits>
#include <memory>
#include <span>
#include <string>

#include "core/optimizer.h"
#include "core/optimizers/archive.h"
#include "core/optimizers/schedule.h"
#include "kernels/device.h"

namespace geomx {

inline constexpr float kUnbounded = std::numeric_limits<float>::infinity();

// A bound on magnitudes, as options give it: negative means none.
inline float Bound(double option) { return option < 0 ? kUnbounded : static_cast<float>(option); }

// The numbers of one update.
struct Step {
  double rate;          // after schedule and multiplier
  float wd;             // after the multiplier
  float rescale;        // on the gradient, before everything else
  float clip;           // bound on the gradient's elements
  std::uint64_t count;  // updates of this tensor, this one included
  NodeId source;        // the node that pushed the gradient

  kernels::Descent Descent(double correction = 1) const {
    return {.rate = static_cast<float>(rate * correction),
            .wd = wd,
            .rescale = rescale,
            .clip = clip};
  }
};

// An optimizer's state per element.
using State = kernels::Resident;

inline float Number(const OptimizerSpec& spec, const char* option) {
  return static_cast<float>(spec.options.at(option));
}

// An optimizer that treats every element alike. Counts updates and keeps the learning rate.
class ElementWise : public Optimizer {
 public:
  using Optimizer::Update;
  // `spec` has every option of the optimizer, defaults included.
  ElementWise(const OptimizerSpec& spec, Key key);
  void Update(std::span<float> weight, std::span<const float> gradient,
              const GradientSource& from) final {
    UpdateOn(kernels::Host(), weight, gradient, from);
  }
  bool OnDevices() const override { return true; }
  void UpdateOn(const kernels::DeviceContext& device, std::span<float> weight,
                std::span<const float> gradient, const GradientSource& from) final;

 protected:
  // The optimizer's step on `n` elements, on `device`.
  virtual void Apply(const kernels::DeviceContext& device, float* weight, const float* gradient,
                     std::uint64_t n, const Step& step) = 0;
  // Writes or reads the optimizer's own state, beside the count of updates.
  virtual void ExchangeOwn(OptimizerArchive& archive) = 0;
  // The rate of the last update, times the decay.
  float last_decay() const { return last_decay_; }

 private:
  void Exchange(OptimizerArchive& archive) final;

  std::string name_;
  double rate_, rate_multiplier_;
  std::unique_ptr<Schedule> schedule_;
  float wd_, last_decay_ = 0;
  double rescale_;
  float clip_;
  bool average_;
  std::uint64_t count_;
};

std::unique_ptr<Optimizer> MakeSgd(const OptimizerSpec& spec, Key key);
std::unique_ptr<Optimizer> MakeNag(const OptimizerSpec& spec, Key key);
std::unique_ptr<Optimizer> MakeAdam(const OptimizerSpec& spec, Key key);
std::unique_ptr<Optimizer> MakeAdamW(const OptimizerSpec& spec, Key key);
std::unique_ptr<Optimizer> MakeRmsProp(const OptimizerSpec& spec, Key key);
std::unique_ptr<Optimizer> MakeAdaGrad(const OptimizerSpec& spec, Key key);
std::unique_ptr<Optimizer> MakeDcAsgd(const OptimizerSpec& spec, Key key);
std::unique_ptr<Optimizer> MakeDelayedNag(const OptimizerSpec& spec, Key key);

}  // namespace geomx
