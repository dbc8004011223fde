// Gradient descent, plain or with momentum: Polyak's (sgd) and Nesterov's (nag).
#include "core/optimizers/family.h"

namespace geomx {
namespace {

// `kRoll` is how velocity and weights move where there is a momentum.
template <auto kRoll>
class Descending final : public ElementWise {
 public:
  Descending(const OptimizerSpec& spec, Key key)
      : ElementWise(spec, key), momentum_(Number(spec, "momentum")) {}

 protected:
  void Apply(std::span<float> weight, const float* gradient, Step step) override {
    if (momentum_ == 0.0f) {
      return kernels::Sgd(step.Descent(), weight.data(), gradient, weight.size());
    }
    velocity_.resize(weight.size());
    kRoll(step.Descent(), momentum_, weight.data(), gradient, velocity_.data(), weight.size());
  }

 private:
  float momentum_;
  State velocity_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeSgd(const OptimizerSpec& spec, Key key) {
  return std::make_unique<Descending<kernels::Momentum>>(spec, key);
}

std::unique_ptr<Optimizer> MakeNag(const OptimizerSpec& spec, Key key) {
  return std::make_unique<Descending<kernels::Nesterov>>(spec, key);
}

}  // namespace geomx
