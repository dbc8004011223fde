// The optimizers that a global server runs on aggregated gradients (and a worker on its own, where
// a sync policy exchanges parameters). Element-wise, so a shard needs nothing from its neighbours.
//
// An optimizer is sent as a name and numbers, never as code. Options have the names, defaults and
// meaning of MXNet 1.9's constructors; the arithmetic follows its operators, in float32. Beyond
// MXNet: adamw (its operator adamw_update, decay in proportion to the learning rate), Adam's
// late_epsilon (epsilon where PyTorch adds it), dcasgd's backup of the weights per source, and
// delayed_nag.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/archive.h"
#include "core/state.h"
#include "core/types.h"
#include "kernels/device.h"

namespace geomx {

class Optimizer;
class OptimizerArchive;
struct OptimizerSpec;

// Creates a plugin's optimizers.
class OptimizerFactory {
 public:
  virtual ~OptimizerFactory() = default;
  // `spec` has every option common to all optimizers, defaults included.
  virtual std::unique_ptr<Optimizer> Make(const OptimizerSpec& spec, Key key) const = 0;
};

// By their name in instructions.
using OptimizerFactories = std::map<std::string, std::shared_ptr<const OptimizerFactory>>;

// One line per item: the name, then "option value". Besides each optimizer's own, there are
//   learning_rate, wd, rescale_grad, clip_gradient (negative: none), lr_mult.KEY, wd_mult.KEY,
//   begin_num_update, schedule.NAME.OPTION (see optimizers/schedule.h), and
//   average (1: the gradient is divided by its merge count, before everything else).
struct OptimizerSpec {
  std::string name;
  std::map<std::string, double> options;
  std::shared_ptr<const OptimizerFactory> factory;  // null: one of the core's own

  // Looks an optimizer up among `plugins`, then among the core's own. Throws std::invalid_argument
  // that names the unknown optimizer, or the option that is unknown or out of range, and what is
  // allowed. Optimizer::Make does not throw for the result.
  static OptimizerSpec Parse(const std::string& text, const OptimizerFactories& plugins = {});
  // Says how many sources (GradientSource) will push, to an optimizer that keeps a state for each.
  void ExpectSources(std::size_t count);
  // `plugins`: as for Parse. Throws StateError for what Parse would not return.
  void Exchange(Archive& archive, const OptimizerFactories& plugins);
};

// The origin of a gradient.
struct GradientSource {
  std::uint32_t merge_count = 1;  // number of workers that it is the sum of
  NodeId source = 0;              // the node that pushed it; asynchronous optimizers keep state per source
  bool absent = false;            // no worker had a gradient: zeros, or the codecs' residuals
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

  // A source's next gradient will be computed on `weight`, which it was given without having pushed.
  virtual void NoteGiven(NodeId source, std::span<const float> weight) { (void)source, (void)weight; }
  // Returns true if the length of a step does not depend on the scale of the gradients.
  virtual bool ScaleFree() const { return false; }
  // The factor of decoupled weight decay in the last update: weights shrank by it, independently of gradients.
  virtual float Decay() const { return 0; }

  // The same for spans on a device: queued there, with the same bits. Called only if this optimizer
  // has device kernels. Its state moves to where the last update took place.
  virtual bool OnDevices() const { return false; }
  virtual void UpdateOn(const kernels::DeviceContext& device, std::span<float> weight,
                        std::span<const float> gradient, const GradientSource& from) {
    (void)device, (void)weight, (void)gradient, (void)from;
  }

  // Returns all that later updates depend on besides options and weights (state.h), after waiting for
  // the device. Throws StateError if a plugin's optimizer cannot tell.
  std::vector<std::byte> Save();
  // Continues from what Save returned of an optimizer of the same name; options may differ, and so
  // may the device. `elements`: the length of the tensor. Throws StateError; this optimizer must not
  // be used then.
  void Load(Bytes saved, std::uint64_t elements);

  // Throws std::invalid_argument.
  static std::unique_ptr<Optimizer> Make(const OptimizerSpec& spec, Key key);
  static std::vector<std::string> Names();

 protected:
  // Writes or reads the whole state, in one order.
  virtual void Exchange(OptimizerArchive& archive) = 0;
};

}  // namespace geomx
