// Gradient descent, plain or with momentum: Polyak's (sgd) and Nesterov's (nag).
#include <vector>

#include "core/optimizers/family.h"

namespace geomx {
namespace {

class Momentum : public ElementWise {
 public:
  Momentum(const OptimizerSpec& spec, Key key)
      : ElementWise(spec, key), momentum_(static_cast<float>(spec.options.at("momentum"))) {}

 protected:
  void Apply(std::span<float> weight, const float* gradient, Step step) final {
    if (momentum_ == 0.0f) return Descend(weight, gradient, step);
    velocity_.resize(weight.size());
    Roll(weight, gradient, step, momentum_, velocity_.data());
  }

  virtual void Roll(std::span<float> weight, const float* gradient, Step step, float momentum,
                    float* velocity) = 0;

 private:
  static void Descend(std::span<float> weight, const float* gradient, Step step) {
    const auto rate = static_cast<float>(step.rate);
    float* const w = weight.data();
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const float g = Within(step.clip, step.rescale * gradient[i]);
      w[i] -= rate * step.wd * w[i] + rate * g;
    }
  }

  float momentum_;
  std::vector<float> velocity_;
};

class Sgd final : public Momentum {
 public:
  using Momentum::Momentum;

 protected:
  void Roll(std::span<float> weight, const float* gradient, Step step, float momentum,
            float* velocity) override {
    const auto rate = static_cast<float>(step.rate);
    float* const w = weight.data();
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const float g = Within(step.clip, step.rescale * gradient[i]);
      velocity[i] = momentum * velocity[i] - rate * step.wd * w[i] - rate * g;
      w[i] += velocity[i];
    }
  }
};

// MXNet's operator writes the weights first, so the decay in the velocity is that of the new ones.
class Nag final : public Momentum {
 public:
  using Momentum::Momentum;

 protected:
  void Roll(std::span<float> weight, const float* gradient, Step step, float momentum,
            float* velocity) override {
    const auto rate = static_cast<float>(step.rate);
    float* const w = weight.data();
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const float g = Within(step.clip, step.rescale * gradient[i]);
      const float kept = momentum * velocity[i];
      w[i] = w[i] - kept + (momentum + 1.0f) * (kept - rate * (g + step.wd * w[i]));
      velocity[i] = kept - rate * (g + step.wd * w[i]);
    }
  }
};

}  // namespace

std::unique_ptr<Optimizer> MakeSgd(const OptimizerSpec& spec, Key key) {
  return std::make_unique<Sgd>(spec, key);
}

std::unique_ptr<Optimizer> MakeNag(const OptimizerSpec& spec, Key key) {
  return std::make_unique<Nag>(spec, key);
}

}  // namespace geomx
