#include "core/optimizer.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <stdexcept>

namespace geomx {
namespace {

// Options that every optimizer understands, with the key's multipliers applied.
struct Common {
  float learning_rate;
  float wd;
  float rescale;
  float clip;  // negative: none

  static Common Of(const OptimizerSpec& spec, Key key) {
    const auto get = [&](const std::string& name, double absent) {
      const auto found = spec.options.find(name);
      return found == spec.options.end() ? absent : found->second;
    };
    const std::string suffix = std::to_string(key);
    return {static_cast<float>(get("learning_rate", 0.01) * get("lr_mult." + suffix, 1.0)),
            static_cast<float>(get("wd", 0.0) * get("wd_mult." + suffix, 1.0)),
            static_cast<float>(get("rescale_grad", 1.0)),
            static_cast<float>(get("clip_gradient", -1.0))};
  }

  float Clip(float value) const {
    return clip < 0 ? value : std::min(std::max(value, -clip), clip);
  }
};

double OptionOr(const OptimizerSpec& spec, const std::string& name, double absent) {
  const auto found = spec.options.find(name);
  return found == spec.options.end() ? absent : found->second;
}

class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerSpec& spec, Key key)
      : common_(Common::Of(spec, key)),
        momentum_(static_cast<float>(OptionOr(spec, "momentum", 0.0))) {}

  void Update(std::span<float> weight, std::span<const float> gradient) override {
    const float lr = common_.learning_rate;
    if (momentum_ == 0.0f) {
      for (std::size_t i = 0; i < weight.size(); ++i) {
        const float g = common_.Clip(common_.rescale * gradient[i]);
        weight[i] = (1.0f - lr * common_.wd) * weight[i] - lr * g;
      }
      return;
    }
    velocity_.resize(weight.size());
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const float g = common_.Clip(common_.rescale * gradient[i]);
      velocity_[i] = momentum_ * velocity_[i] - lr * common_.wd * weight[i] - lr * g;
      weight[i] += velocity_[i];
    }
  }

 private:
  Common common_;
  float momentum_;
  std::vector<float> velocity_;
};

// Kingma and Ba, 2015, with the bias correction folded into the learning rate as MXNet does.
class Adam final : public Optimizer {
 public:
  Adam(const OptimizerSpec& spec, Key key)
      : common_(Common::Of(spec, key)),
        beta1_(OptionOr(spec, "beta1", 0.9)),
        beta2_(OptionOr(spec, "beta2", 0.999)),
        epsilon_(static_cast<float>(OptionOr(spec, "epsilon", 1e-8))) {}

  void Update(std::span<float> weight, std::span<const float> gradient) override {
    mean_.resize(weight.size());
    variance_.resize(weight.size());
    ++step_;
    const float lr = static_cast<float>(common_.learning_rate *
                                        std::sqrt(1.0 - std::pow(beta2_, step_)) /
                                        (1.0 - std::pow(beta1_, step_)));
    const auto b1 = static_cast<float>(beta1_);
    const auto b2 = static_cast<float>(beta2_);
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const float g = common_.Clip(common_.rescale * gradient[i] + common_.wd * weight[i]);
      mean_[i] = b1 * mean_[i] + (1.0f - b1) * g;
      variance_[i] = b2 * variance_[i] + (1.0f - b2) * g * g;
      weight[i] -= lr * mean_[i] / (std::sqrt(variance_[i]) + epsilon_);
    }
  }

 private:
  Common common_;
  double beta1_, beta2_;
  float epsilon_;
  std::vector<float> mean_, variance_;
  int step_ = 0;
};

// What each optimizer takes besides the common options.
const std::map<std::string, std::set<std::string>>& Known() {
  static const std::map<std::string, std::set<std::string>> known = {
      {"sgd", {"momentum"}}, {"adam", {"beta1", "beta2", "epsilon"}}};
  return known;
}

bool IsCommon(const std::string& option) {
  static const std::set<std::string> common = {"learning_rate", "wd", "rescale_grad",
                                               "clip_gradient"};
  return common.contains(option) || option.starts_with("lr_mult.") ||
         option.starts_with("wd_mult.");
}

}  // namespace

OptimizerSpec OptimizerSpec::Parse(const std::string& text) {
  std::istringstream lines(text);
  OptimizerSpec spec;
  std::getline(lines, spec.name);
  const auto known = Known().find(spec.name);
  if (known == Known().end()) throw std::invalid_argument("unknown optimizer " + spec.name);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string option;
    double value = 0;
    if (!(words >> option >> value) || !std::isfinite(value)) {
      throw std::invalid_argument("optimizer " + spec.name + ": bad option line '" + line + "'");
    }
    if (!IsCommon(option) && !known->second.contains(option)) {
      throw std::invalid_argument("optimizer " + spec.name + " has no option " + option);
    }
    spec.options[option] = value;
  }
  return spec;
}

std::unique_ptr<Optimizer> Optimizer::Make(const OptimizerSpec& spec, Key key) {
  if (spec.name == "sgd") return std::make_unique<Sgd>(spec, key);
  if (spec.name == "adam") return std::make_unique<Adam>(spec, key);
  throw std::invalid_argument("unknown optimizer " + spec.name);
}

std::vector<std::string> Optimizer::Names() {
  std::vector<std::string> names;
  for (const auto& [name, options] : Known()) names.push_back(name);
  return names;
}

}  // namespace geomx
