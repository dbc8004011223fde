// Asynchronous descent with delay compensation (Zheng et al., ICML 2017, arXiv 1609.08326).
//
// A gradient that arrives now was computed on the weights that its source last received. The first
// term of the Taylor expansion moves it to today's weights, with g * g for the Hessian's diagonal;
// `variance` scales that by the source's own mean square of gradients (DC-ASGD-a). Every source has
// its own backup of the weights, so the true delay of each is compensated.
#include <cmath>
#include <map>
#include <utility>

#include "core/optimizers/family.h"

namespace geomx {
namespace {

constexpr double kConstantLamda = 0.04;
constexpr double kAdaptiveLamda = 2.0;

class DcAsgd final : public ElementWise {
 public:
  DcAsgd(const OptimizerSpec& spec, Key key)
      : ElementWise(spec, key),
        adaptive_(spec.options.at("variance") != 0),
        numbers_{.lamda = 0,
                 .momentum = Number(spec, "momentum"),
                 .decay = Number(spec, "m"),
                 .epsilon = Number(spec, "eps")},
        expected_(spec.options.at("sources")) {
    const double given = spec.options.at("lamda");
    const double otherwise = adaptive_ ? kAdaptiveLamda : kConstantLamda;
    numbers_.lamda = static_cast<float>(std::isnan(given) ? otherwise : given);
  }

 protected:
  void Apply(std::span<float> weight, const float* gradient, Step step) override {
    Source& from = Recall(step.source, weight);
    const std::size_t n = weight.size();
    float* velocity = nullptr;
    float* mean_square = nullptr;
    if (numbers_.momentum != 0.0f) {
      velocity_.resize(n);
      velocity = velocity_.data();
    }
    if (adaptive_) {
      from.mean_square.resize(n);
      mean_square = from.mean_square.data();
    }
    kernels::DcAsgd(step.Descent(), numbers_, weight.data(), gradient, from.backup.data(),
                    velocity, mean_square, n);
  }

 private:
  struct Source {
    State backup;  // the weights after its own last update
    State mean_square;
  };

  // A source starts from the initial weights. They are kept until as many sources as are expected
  // have been heard; one beyond those starts from the weights as they are.
  Source& Recall(NodeId id, std::span<const float> weight) {
    if (sources_.empty()) initial_.assign(weight.begin(), weight.end());
    const auto [found, fresh] = sources_.try_emplace(id);
    State& backup = found->second.backup;
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

  bool adaptive_;
  kernels::Compensation numbers_;
  double expected_;  // sources; 0: unknown
  std::map<NodeId, Source> sources_;
  State initial_;
  State velocity_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeDcAsgd(const OptimizerSpec& spec, Key key) {
  return std::make_unique<DcAsgd>(spec, key);
}

}  // namespace geomx
