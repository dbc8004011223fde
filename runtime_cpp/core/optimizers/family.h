// What the optimizers have in common, and how each is made. Only optimizer.cc and the optimizers'
// own sources include this.
//
// The hot loops are plain loops over local pointers, without a branch per element, so that the
// compiler vectorises them; a bound that was not asked for is infinite.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <span>

#include "core/optimizer.h"
#include "core/optimizers/schedule.h"

namespace geomx {

inline constexpr float kUnbounded = std::numeric_limits<float>::infinity();

inline float Within(float bound, float value) { return std::min(std::max(value, -bound), bound); }

// A bound on magnitudes, as options give it: negative means none.
inline float Bound(double option) { return option < 0 ? kUnbounded : static_cast<float>(option); }

// The numbers of one update.
struct Step {
  double rate;          // after schedule and multiplier
  float wd;             // after the multiplier
  float rescale;        // on the gradient, before everything else
  float clip;           // bound on the gradient's elements
  std::uint64_t count;  // updates of this tensor, this one included
  NodeId source;        // who pushed the gradient
};

// An optimizer that treats every element alike. Counts updates and keeps the learning rate.
class ElementWise : public Optimizer {
 public:
  using Optimizer::Update;
  // `spec` has every option of the optimizer, defaults included.
  ElementWise(const OptimizerSpec& spec, Key key);
  void Update(std::span<float> weight, std::span<const float> gradient,
              const Contribution& from) final;

 protected:
  virtual void Apply(std::span<float> weight, const float* gradient, Step step) = 0;

 private:
  double rate_, rate_multiplier_;
  std::unique_ptr<Schedule> schedule_;
  float wd_;
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

}  // namespace geomx
