// Optimizers that scale each element's step by the gradients that it has seen.
#include <cmath>
#include <stdexcept>

#include "core/optimizers/family.h"

namespace geomx {
namespace {

// Kingma and Ba, 2015 (arXiv 1412.6980); the correction of the bias goes into the learning rate.
// Epsilon is added to the root before that correction, as MXNet does, or after it (late_epsilon), as
// PyTorch does: mean / (root / c + epsilon) = c mean / (root + c epsilon).
class Adam : public ElementWise {
 public:
  Adam(const OptimizerSpec& spec, Key key)
      : ElementWise(spec, key),
        beta1_(spec.options.at("beta1")),
        beta2_(spec.options.at("beta2")),
        epsilon_(spec.options.at("epsilon")),
        late_epsilon_(spec.options.at("late_epsilon") != 0) {}
  bool ScaleFree() const override { return true; }

 protected:
  void Apply(const kernels::DeviceContext& device, float* weight, const float* gradient,
             std::uint64_t n, const Step& step) override {
    float *mean = mean_.At(device, n), *square = square_.At(device, n);
    device.queue.Adam(step.Descent(Correction(step.count)), Moments(step.count), weight, gradient,
                     mean, square, n);
  }
  void ExchangeOwn(OptimizerArchive& archive) override {
    archive.Values("mean", mean_);
    archive.Values("square", square_);
  }

  double Root(std::uint64_t count) const {
    return std::sqrt(1.0 - std::pow(beta2_, static_cast<double>(count)));
  }
  double Correction(std::uint64_t count) const {
    return Root(count) / (1.0 - std::pow(beta1_, static_cast<double>(count)));
  }
  kernels::Moments Moments(std::uint64_t count) const {
    const double epsilon = late_epsilon_ ? epsilon_ * Root(count) : epsilon_;
    return {.beta1 = static_cast<float>(beta1_),
            .beta2 = static_cast<float>(beta2_),
            .epsilon = static_cast<float>(epsilon)};
  }

  double beta1_, beta2_, epsilon_;
  bool late_epsilon_;
  State mean_, square_;
};

// Loshchilov and Hutter, 2019 (arXiv 1711.05101): the weights decay by themselves, not through the
// gradient. MXNet's operator adamw_update with eta = the learning rate and lr = the correction.
class AdamW final : public Adam {
 public:
  AdamW(const OptimizerSpec& spec, Key key)
      : Adam(spec, key), correct_bias_(spec.options.at("correct_bias") != 0) {
    if (late_epsilon_ && !correct_bias_) {
      throw std::invalid_argument("late_epsilon needs correct_bias: there is nothing to be late for");
    }
  }
  float Decay() const override { return last_decay(); }

 protected:
  void Apply(const kernels::DeviceContext& device, float* weight, const float* gradient,
             std::uint64_t n, const Step& step) override {
    float *mean = mean_.At(device, n), *square = square_.At(device, n);
    const auto correction = static_cast<float>(correct_bias_ ? Correction(step.count) : 1.0);
    device.queue.AdamW(step.Descent(), Moments(step.count), correction, weight, gradient, mean,
                      square, n);
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
        numbers_{.gamma = Number(spec, "gamma1"),
                 .momentum = Number(spec, "gamma2"),
                 .epsilon = Number(spec, "epsilon"),
                 .largest = Bound(spec.options.at("clip_weights"))},
        centered_(spec.options.at("centered") != 0) {}
  bool ScaleFree() const override { return true; }

 protected:
  void Apply(const kernels::DeviceContext& device, float* weight, const float* gradient,
             std::uint64_t n, const Step& step) override {
    float* square = square_.At(device, n);
    if (!centered_) {
      return device.queue.RmsPropPlain(step.Descent(), numbers_, weight, gradient, square, n);
    }
    float *mean = mean_.At(device, n), *velocity = velocity_.At(device, n);
    device.queue.RmsPropCentered(step.Descent(), numbers_, weight, gradient, square, mean, velocity,
                                n);
  }
  void ExchangeOwn(OptimizerArchive& archive) override {
    archive.Values("square", square_);
    archive.Values("mean", mean_);
    archive.Values("velocity", velocity_);
  }

 private:
  kernels::RmsProp numbers_;
  bool centered_;
  State square_, mean_, velocity_;
};

// Duchi, Hazan and Singer, 2011 (JMLR 12).
class AdaGrad final : public ElementWise {
 public:
  AdaGrad(const OptimizerSpec& spec, Key key)
      : ElementWise(spec, key), eps_(Number(spec, "eps")) {}
  bool ScaleFree() const override { return true; }
  float Decay() const override { return last_decay(); }

 protected:
  void Apply(const kernels::DeviceContext& device, float* weight, const float* gradient,
             std::uint64_t n, const Step& step) override {
    device.queue.AdaGrad(step.Descent(), eps_, weight, gradient, history_.At(device, n), n);
  }
  void ExchangeOwn(OptimizerArchive& archive) override { archive.Values("history", history_); }

 private:
  float eps_;
  State history_;
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
