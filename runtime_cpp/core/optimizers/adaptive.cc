// Optimizers that scale each element's step by the gradients that it has seen.
#include <cmath>
#include <vector>

#include "core/optimizers/family.h"

namespace geomx {
namespace {

float Number(const OptimizerSpec& spec, const char* option) {
  return static_cast<float>(spec.options.at(option));
}

// Kingma and Ba, 2015 (arXiv 1412.6980); the correction of the bias goes into the learning rate.
class Adam : public ElementWise {
 public:
  Adam(const OptimizerSpec& spec, Key key)
      : ElementWise(spec, key),
        beta1_(spec.options.at("beta1")),
        beta2_(spec.options.at("beta2")),
        epsilon_(Number(spec, "epsilon")) {}

 protected:
  void Apply(std::span<float> weight, const float* gradient, Step step) override {
    Prepare(weight.size());
    const auto rate = static_cast<float>(step.rate * Correction(step.count));
    const auto b1 = static_cast<float>(beta1_), b2 = static_cast<float>(beta2_);
    const float epsilon = epsilon_;
    float* const w = weight.data();
    float* const mean = mean_.data();
    float* const square = square_.data();
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const float g = Within(step.clip, step.rescale * gradient[i] + step.wd * w[i]);
      mean[i] = b1 * mean[i] + (1.0f - b1) * g;
      square[i] = b2 * square[i] + (1.0f - b2) * g * g;
      w[i] -= rate * mean[i] / (std::sqrt(square[i]) + epsilon);
    }
  }

  void Prepare(std::size_t elements) {
    mean_.resize(elements);
    square_.resize(elements);
  }
  double Correction(std::uint64_t count) const {
    const auto t = static_cast<double>(count);
    return std::sqrt(1.0 - std::pow(beta2_, t)) / (1.0 - std::pow(beta1_, t));
  }

  double beta1_, beta2_;
  float epsilon_;
  std::vector<float> mean_, square_;
};

// Loshchilov and Hutter, 2019 (arXiv 1711.05101): the weights decay by themselves, not through the
// gradient. MXNet's operator adamw_update with eta = the learning rate and lr = the correction.
class AdamW final : public Adam {
 public:
  AdamW(const OptimizerSpec& spec, Key key)
      : Adam(spec, key), correct_bias_(spec.options.at("correct_bias") != 0) {}

 protected:
  void Apply(std::span<float> weight, const float* gradient, Step step) override {
    Prepare(weight.size());
    const auto rate = static_cast<float>(step.rate);
    const auto correction = static_cast<float>(correct_bias_ ? Correction(step.count) : 1.0);
    const auto b1 = static_cast<float>(beta1_), b2 = static_cast<float>(beta2_);
    const float epsilon = epsilon_;
    float* const w = weight.data();
    float* const mean = mean_.data();
    float* const square = square_.data();
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const float g = Within(step.clip, step.rescale * gradient[i]);
      mean[i] = b1 * mean[i] + (1.0f - b1) * g;
      square[i] = b2 * square[i] + (1.0f - b2) * g * g;
      w[i] -= rate * (correction * mean[i] / (std::sqrt(square[i]) + epsilon) + step.wd * w[i]);
    }
  }

 private:
  bool correct_bias_;
};

// Plain: Tieleman and Hinton, 2012. Centered: Graves, 2013 (arXiv 1308.0850), which divides by the
// variance instead of the mean square and has a momentum, gamma2.
class RmsProp final : public ElementWise {
 public:
  RmsProp(const OptimizerSpec& spec, Key key)
      : ElementWise(spec, key),
        gamma1_(Number(spec, "gamma1")),
        gamma2_(Number(spec, "gamma2")),
        epsilon_(Number(spec, "epsilon")),
        largest_(Bound(spec.options.at("clip_weights"))),
        centered_(spec.options.at("centered") != 0) {}

 protected:
  void Apply(std::span<float> weight, const float* gradient, Step step) override {
    square_.resize(weight.size());
    if (centered_) {
      mean_.resize(weight.size());
      velocity_.resize(weight.size());
      Centered(weight, gradient, step);
    } else {
      Plain(weight, gradient, step);
    }
  }

 private:
  void Plain(std::span<float> weight, const float* gradient, Step step) {
    const auto rate = static_cast<float>(step.rate);
    const float gamma = gamma1_, epsilon = epsilon_, largest = largest_;
    float* const w = weight.data();
    float* const square = square_.data();
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const float g = Within(step.clip, step.rescale * gradient[i] + step.wd * w[i]);
      square[i] = gamma * square[i] + (1.0f - gamma) * (g * g);
      w[i] = Within(largest, w[i] - rate * (g / std::sqrt(square[i] + epsilon)));
    }
  }

  void Centered(std::span<float> weight, const float* gradient, Step step) {
    const auto rate = static_cast<float>(step.rate);
    const float gamma = gamma1_, momentum = gamma2_, epsilon = epsilon_, largest = largest_;
    float* const w = weight.data();
    float* const square = square_.data();
    float* const mean = mean_.data();
    float* const velocity = velocity_.data();
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const float g = Within(step.clip, step.rescale * gradient[i] + step.wd * w[i]);
      square[i] = gamma * square[i] + (1.0f - gamma) * g * g;
      mean[i] = gamma * mean[i] + (1.0f - gamma) * g;
      velocity[i] = momentum * velocity[i] -
                    rate * g / std::sqrt(square[i] - mean[i] * mean[i] + epsilon);
      w[i] = Within(largest, w[i] + velocity[i]);
    }
  }

  float gamma1_, gamma2_, epsilon_, largest_;
  bool centered_;
  std::vector<float> square_, mean_, velocity_;
};

// Duchi, Hazan and Singer, 2011 (JMLR 12).
class AdaGrad final : public ElementWise {
 public:
  AdaGrad(const OptimizerSpec& spec, Key key)
      : ElementWise(spec, key), eps_(Number(spec, "eps")) {}

 protected:
  void Apply(std::span<float> weight, const float* gradient, Step step) override {
    history_.resize(weight.size());
    const auto rate = static_cast<float>(step.rate);
    const float eps = eps_;
    float* const w = weight.data();
    float* const history = history_.data();
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const float g = Within(step.clip, step.rescale * gradient[i]);
      history[i] += g * g;
      w[i] -= rate * (g / std::sqrt(history[i] + eps) + step.wd * w[i]);
    }
  }

 private:
  float eps_;
  std::vector<float> history_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeAdam(const OptimizerSpec& spec, Key key) {
  return std::make_unique<Adam>(spec, key);
}

std::unique_ptr<Optimizer> MakeAdamW(const OptimizerSpec& spec, Key key) {
  return std::make_unique<AdamW>(spec, key);
}

std::unique_ptr<Optimizer> MakeRmsProp(const OptimizerSpec& spec, Key key) {
  return std::make_unique<RmsProp>(spec, key);
}

std::unique_ptr<Optimizer> MakeAdaGrad(const OptimizerSpec& spec, Key key) {
  return std::make_unique<AdaGrad>(spec, key);
}

}  // namespace geomx
