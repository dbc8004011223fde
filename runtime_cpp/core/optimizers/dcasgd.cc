// Asynchronous descent with delay compensation (Zheng et al., ICML 2017, arXiv 1609.08326).
//
// A gradient that arrives now was computed on the weights that its source last received, in answer to its last
// gradient or when it began or came back. The first term of the Taylor expansion moves it to today's weights, with
// g * g for the Hessian's diagonal; `variance` scales that by the source's own mean square of gradients
// (DC-ASGD-a). Every source has its own backup of the weights, so the true delay of each is compensated.
#include <algorithm>
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

  void NoteGiven(NodeId source, std::span<const float> weight) override {
    if (sources_.empty()) return;  // its first gradient is compensated from the initial weights, which these are
    State& backup = sources_[source].backup;
    std::copy(weight.begin(), weight.end(), backup.At(kernels::Host(), weight.size()));
    if (static_cast<double>(sources_.size()) == expected_) initial_ = {};
  }

 protected:
  void Apply(const kernels::DeviceContext& device, float* weight, const float* gradient,
             std::uint64_t n, const Step& step) override {
    Source& from = Recall(device, step.source, weight, n);
    float* velocity = numbers_.momentum != 0.0f ? velocity_.At(device, n) : nullptr;
    float* mean_square = adaptive_ ? from.mean_square.At(device, n) : nullptr;
    device.queue.DcAsgd(step.Descent(), numbers_, weight, gradient, from.backup.At(device, n),
                       velocity, mean_square, n);
  }
  void ExchangeOwn(OptimizerArchive& archive) override {
    archive.Values("initial", initial_);
    archive.Values("velocity", velocity_);
    auto count = static_cast<std::uint32_t>(sources_.size());
    archive.Number(count);
    if (archive.loading()) sources_.clear();
    auto known = sources_.begin();
    for (std::uint32_t i = 0; i < count; ++i) {
      NodeId id = archive.loading() ? 0 : known->first;
      archive.Number(id);
      Source& source = archive.loading() ? sources_[id] : (known++)->second;
      archive.Values("backup", source.backup);
      archive.Values("mean_square", source.mean_square);
    }
    if (sources_.size() != count) throw StateError("it has two states of one source");
  }

 private:
  struct Source {
    State backup;  // the weights after its own last update, or that it was given since
    State mean_square;
  };

  // A source starts from the initial weights. They are kept until all expected sources have pushed or were given
  // later ones; a source beyond those starts from the current weights.
  Source& Recall(const kernels::DeviceContext& device, NodeId id, const float* weight,
                 std::uint64_t n) {
    const auto copy = [&](State& to, const float* from) {
      device.queue.Copy(to.At(device, n), from, n * sizeof(float));
    };
    if (sources_.empty()) copy(initial_, weight);
    const auto [found, fresh] = sources_.try_emplace(id);
    State& backup = found->second.backup;
    if (fresh && static_cast<double>(sources_.size()) == expected_) {
      backup = std::exchange(initial_, {});
    } else if (fresh && static_cast<double>(sources_.size()) > expected_ && expected_ > 0) {
      copy(backup, weight);
    } else if (fresh) {
      copy(backup, initial_.At(device, n));
    }
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
