// The optimizers that a global server runs on aggregated gradients (and a worker on its own, where
// a sync policy exchanges parameters). Element-wise, so a shard needs nothing from its neighbours.
//
// An optimizer travels as a name and numbers, never as code. Options are spelled, have the defaults
// and mean what they do in MXNet 1.9's constructors; the arithmetic follows its operators, in
// float32. What MXNet lacks: adamw (its operator adamw_update, decay in proportion to the learning
// rate), Adam's late_epsilon (epsilon where PyTorch adds it), and dcasgd's backup of the weights per
// source.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/types.h"
#include "kernels/device.h"

namespace geomx {

class Optimizer;
struct OptimizerSpec;

// Makes the optimizers that a plugin brought.
class OptimizerFactory {
 public:
  virtual ~OptimizerFactory() = default;
  // `spec` has every option that all optimizers have, defaults included.
  virtual std::unique_ptr<Optimizer> Make(const OptimizerSpec& spec, Key key) const = 0;
};

// By the name that instructions call them.
using OptimizerFactories = std::map<std::string, std::shared_ptr<const OptimizerFactory>>;

// One line per item: the name, then "option value". Besides each optimizer's own, there are
//   learning_rate, wd, rescale_grad, clip_gradient (negative: none), lr_mult.KEY, wd_mult.KEY,
//   begin_num_update, schedule.NAME.OPTION (see optimizers/schedule.h), and
//   average (1: the gradient is divided by its merge count, before everything else).
struct OptimizerSpec {
  std::string name;
  std::map<std::string, double> options;
  std::shared_ptr<const OptimizerFactory> factory;  // null: one of the core's own

  // `plugins` come before the core's own. Throws std::invalid_argument, naming the optimizer or option that is unknown or out of range
  // and what is allowed. What it returns can be made.
  static OptimizerSpec Parse(const std::string& text, const OptimizerFactories& plugins = {});
};

// Where a gradient comes from.
struct GradientSource {
  std::uint32_t merge_count = 1;  // for how many workers it is the sum
  NodeId source = 0;              // who pushed it; asynchronous optimizers keep state per source
  bool absent = false;            // no worker had a gradient; it is zeros, or what codecs had kept
};

// One tensor's (or shard's) optimizer, with its state.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Both spans have the length of the first call's.
  virtual void Update(std::span<float> weight, std::span<const float> gradient,
                      const GradientSource& from) = 0;
  void Update(std::span<float> weight, std::span<const float> gradient) {
    Update(weight, gradient, {});
  }

  // The same where both lie on a device: queued there, the same bits. Called only if this optimizer
  // has kernels for devices. What it keeps lies wherever it was last asked for.
  virtual bool OnDevices() const { return false; }
  virtual void UpdateOn(const kernels::DeviceContext& device, std::span<float> weight,
                        std::span<const float> gradient, const GradientSource& from) {
    (void)device, (void)weight, (void)gradient, (void)from;
  }

  // Throws std::invalid_argument.
  static std::unique_ptr<Optimizer> Make(const OptimizerSpec& spec, Key key);
  static std::vector<std::string> Names();
};

}  // namespace geomx
