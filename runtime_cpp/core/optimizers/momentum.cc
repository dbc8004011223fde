// Gradient descent, plain or with momentum: Polyak's (sgd) and Nesterov's (nag).
#include "core/optimizers/family.h"

namespace geomx {
namespace {

// `kRoll` is the queue's kernel that moves velocity and weights where there is a momentum.
template <auto kRoll>
class Descending final : public ElementWise {
 public:
  Descending(const OptimizerSpec& spec, Key key)
      : ElementWise(spec, key), momentum_(Number(spec, "momentum")) {}

 protected:
  void Apply(const kernels::DeviceContext& device, float* weight, const float* gradient,
             std::uint64_t n, const Step& step) override {
    if (momentum_ == 0.0f) return device.queue.Sgd(step.Descent(), weight, gradient, n);
    float* velocity = velocity_.At(device, n);
    (device.queue.*kRoll)(step.Descent(), momentum_, weight, gradient, velocity, n);
  }
  void ExchangeOwn(OptimizerArchive& archive) override { archive.Values("velocity", velocity_); }

 private:
  float momentum_;
  State velocity_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeSgd(const OptimizerSpec& spec, Key key) {
  return std::make_unique<Descending<&kernels::Queue::Momentum>>(spec, key);
}

std::unique_ptr<Optimizer> MakeNag(const OptimizerSpec& spec, Key key) {
  return std::make_unique<Descending<&kernels::Queue::Nesterov>>(spec, key);
}

}  // namespace geomx
