// Asynchronous descent with delay compensation (Zheng et al., ICML 2017, arXiv 1609.08326).
//
// A gradient that arrives now was computed on the weights that its source last received. The first
// term of the Taylor expansion moves it to today's weights, with g * g for the Hessian's diagonal;
// `variance` scales that by the source's own mean square of gradients (DC-ASGD-a). Every source has
// its own backup of the weights, so the true delay of each is compensated.
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "core/optimizers/family.h"

namespace geomx {
namespace {

constexpr double kConstantLamda = 0.04;
constexpr double kAdaptiveLamda = 2.0;

class DcAsgd final : public ElementWise {
 public:
  DcAsgd(const OptimizerSpec& spec, Key key)
      : ElementWise(spec, key),
        momentum_(static_cast<float>(spec.options.at("momentum"))),
        adaptive_(spec.options.at("variance") != 0),
        decay_(static_cast<float>(spec.options.at("m"))),
        eps_(static_cast<float>(spec.options.at("eps"))),
        expected_(spec.options.at("sources")) {
    const double given = spec.options.at("lamda");
    const double otherwise = adaptive_ ? kAdaptiveLamda : kConstantLamda;
    lamda_ = static_cast<float>(std::isnan(given) ? otherwise : given);
  }

 protected:
  void Apply(std::span<float> weight, const float* gradient, Step step) override {
    Source& from = Recall(step.source, weight);
    if (momentum_ != 0.0f) velocity_.resize(weight.size());
    if (adaptive_) from.mean_square.resize(weight.size());
    if (adaptive_) {
      momentum_ != 0.0f ? Move<true, true>(weight, gradient, step, from)
                        : Move<true, false>(weight, gradient, step, from);
    } else {
      momentum_ != 0.0f ? Move<false, true>(weight, gradient, step, from)
                        : Move<false, false>(weight, gradient, step, from);
    }
  }

 private:
  struct Source {
    std::vector<float> backup;  // the weights after its own last update
    std::vector<float> mean_square;
  };

  // A source starts from the initial weights. They are kept until as many sources as are expected
  // have been heard; one beyond those starts from the weights as they are.
  Source& Recall(NodeId id, std::span<const float> weight) {
    if (sources_.empty()) initial_.assign(weight.begin(), weight.end());
    const auto [found, fresh] = sources_.try_emplace(id);
    std::vector<float>& backup = found->second.backup;
    if (fresh && static_cast<double>(sources_.size()) == expected_) {
      backup = std::move(initial_);
    } else if (fresh && static_cast<double>(sources_.size()) > expected_ && expected_ > 0) {
      backup.assign(weight.begin(), weight.end());
    } else if (fresh) {
      backup = initial_;
    }
    backup.resize(weight.size());
    return found->second;
  }

  template <bool kAdaptive, bool kMomentum>
  void Move(std::span<float> weight, const float* gradient, Step step, Source& from) {
    const auto rate = static_cast<float>(step.rate);
    const float lamda = lamda_, momentum = momentum_, decay = decay_, eps = eps_;
    float* const w = weight.data();
    float* const backup = from.backup.data();
    float* const mean_square = from.mean_square.data();
    float* const velocity = velocity_.data();
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const float g = Within(step.clip, step.rescale * gradient[i]);
      float strength = lamda;
      if constexpr (kAdaptive) {
        mean_square[i] = decay * mean_square[i] + (1.0f - decay) * g * g;
        strength = lamda / std::sqrt(mean_square[i] + eps);
      }
      const float move = rate * (g + step.wd * w[i] + strength * g * g * (w[i] - backup[i]));
      if constexpr (kMomentum) {
        velocity[i] = momentum * velocity[i] - move;
        w[i] += velocity[i];
      } else {
        w[i] -= move;
      }
      backup[i] = w[i];
    }
  }

  float momentum_, lamda_;
  bool adaptive_;
  float decay_, eps_;
  double expected_;  // sources; 0: unknown
  std::map<NodeId, Source> sources_;
  std::vector<float> initial_;
  std::vector<float> velocity_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeDcAsgd(const OptimizerSpec& spec, Key key) {
  return std::make_unique<DcAsgd>(spec, key);
}

}  // namespace geomx
