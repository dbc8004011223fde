// Delayed Nesterov momentum, for updates that are applied one by one (Liu et al., 2024, arXiv 2401.09135, its
// algorithm 3 with c = 0).
//
// A momentum that moves with every asynchronous update amplifies stale ones. This one moves with every
// `delay`-th update only, by the mean of those since, and acts once then; the updates in between are plain
// descent:
//
//     buffer += g
//     w -= rate (g + wd w)
//     every delay-th time:  velocity = momentum velocity + buffer / delay;  buffer = 0
//                           w -= rate delay momentum velocity
//
// The rate is that of one update, the paper's divided by `delay`. The momentum is of gradients only: with a delay
// of 1 and without decay, this is Nesterov's.
#include <cmath>
#include <stdexcept>

#include "core/optimizers/family.h"

namespace geomx {
namespace {

constexpr double kMostDelay = 1 << 20;

class DelayedNesterov final : public ElementWise {
 public:
  DelayedNesterov(const OptimizerSpec& spec, Key key)
      : ElementWise(spec, key), momentum_(Number(spec, "momentum")) {
    const double delay = spec.options.at("delay");
    if (!(delay >= 1 && delay <= kMostDelay) || delay != std::floor(delay)) {
      throw std::invalid_argument("delay must be a whole number of updates, 1 or more");
    }
    delay_ = static_cast<std::uint64_t>(delay);
    before_ = static_cast<std::uint64_t>(spec.options.at("begin_num_update"));
  }

 protected:
  // Sums and products of arrays are steps of plain descent, which all devices have.
  void Apply(const kernels::DeviceContext& device, float* weight, const float* gradient,
             std::uint64_t n, const Step& step) override {
    kernels::Queue& queue = device.queue;
    const kernels::Descent descent = step.Descent();
    queue.Sgd(descent, weight, gradient, n);
    if (momentum_ == 0.0f) return;
    float* buffer = buffer_.At(device, n);
    queue.Sgd({.rate = -1, .wd = 0, .rescale = descent.rescale, .clip = descent.clip}, buffer, gradient, n);
    if ((step.count - before_) % delay_ != 0) return;
    float* velocity = velocity_.At(device, n);
    const auto delay = static_cast<float>(delay_);
    queue.Sgd({.rate = -1, .wd = momentum_ - 1, .rescale = 1 / delay, .clip = kUnbounded}, velocity, buffer, n);
    queue.Sgd({.rate = descent.rate, .wd = 0, .rescale = delay * momentum_, .clip = kUnbounded}, weight, velocity, n);
    queue.Clear(buffer, n * sizeof(float));
  }
  void ExchangeOwn(OptimizerArchive& archive) override {
    archive.Values("buffer", buffer_);
    archive.Values("velocity", velocity_);
  }

 private:
  float momentum_;
  std::uint64_t delay_ = 1, before_ = 0;  // `before_`: updates that count as made before the first one
  State buffer_, velocity_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeDelayedNag(const OptimizerSpec& spec, Key key) {
  return std::make_unique<DelayedNesterov>(spec, key);
}

}  // namespace geomx
