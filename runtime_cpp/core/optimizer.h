// The optimizers that a global server runs on aggregated gradients (and a worker on its own, where
// a sync policy exchanges parameters). Element-wise, so a shard needs nothing from its neighbours.
//
// An optimizer travels as a name and numbers, never as code. The arithmetic follows MXNet's
// operators (sgd_update, sgd_mom_update, adam_update), in float32.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/types.h"

namespace geomx {

// One line per item: the name, then "option value". Options: learning_rate, momentum, wd, beta1,
// beta2, epsilon, rescale_grad, clip_gradient (absent or negative: none), lr_mult.KEY, wd_mult.KEY.
struct OptimizerSpec {
  std::string name;
  std::map<std::string, double> options;

  // Throws std::invalid_argument, naming the optimizer or option that is not known.
  static OptimizerSpec Parse(const std::string& text);
};

// One tensor's (or shard's) optimizer, with its state.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Both spans have the length of the first call's.
  virtual void Update(std::span<float> weight, std::span<const float> gradient) = 0;

  // Throws std::invalid_argument.
  static std::unique_ptr<Optimizer> Make(const OptimizerSpec& spec, Key key);
  static std::vector<std::string> Names();
};

}  // namespace geomx
