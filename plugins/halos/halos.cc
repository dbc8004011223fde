// HALoS (Kim et al., ICML 2025, arXiv 2506.04531): the local server's part, and the planner of steps.
//
// A local server keeps the party's model. A worker pushes its parameters after H local steps; the change
// from what it received last is applied as a gradient, by delayed Nesterov momentum (core/optimizers/delayed.cc), and
// the worker continues with the result. After K such updates, the server sends the net move of the model to the
// global server and continues. An answer Theta is merged: theta = (1 - alpha) theta + alpha Theta.
//
// Merging is no move: the point from which moves are counted is shifted with the model. All moves together are
// therefore what workers have learnt, each counted once, however answers and updates interleave. The last
// answer is taken as it is, as it contains all of the party's moves.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/natives.h"
#include "core/optimizer.h"

namespace geomx {
namespace {

using Values = std::vector<float>;

class Halos final : public PartyPolicy {
 public:
  explicit Halos(const Options& options)
      : k_(Require(options, "k")), alpha_(static_cast<float>(Require(options, "alpha"))) {
    if (!(k_ >= 1)) throw std::invalid_argument("k must be positive");
    spec_.name = "delayed_nag";
    spec_.options = {{"learning_rate", Require(options, "local_lr")},
                     {"momentum", Require(options, "local_momentum")},
                     {"delay", Require(options, "local_delay")}};
    Optimizer::Make(spec_, 0);
  }

  bool NeedsInitial() const override { return true; }

  void Initial(const ShardInfo& shard, std::span<const float> value) override {
    Model& model = this->model(shard);
    model.values.assign(value.begin(), value.end());
    model.initial = model.origin = model.values;
  }

  void Update(const WorkerPush& push, std::span<float> value) override {
    Model& model = this->model(push.shard);
    ++model.updates;
    if (value.empty()) return;
    Values& given = model.given.try_emplace(push.worker, model.initial).first->second;
    for (std::size_t i = 0; i < value.size(); ++i) value[i] = given[i] - value[i];
    if (!model.optimizer) model.optimizer = Optimizer::Make(spec_, push.shard.key);
    model.optimizer->Update(model.values, value);
    std::copy(model.values.begin(), model.values.end(), value.begin());
    given = model.values;
  }

  std::optional<Values> Send(const ShardInfo& shard, bool ends) override {
    Model& model = this->model(shard);
    if (!ends && model.updates < k_) return std::nullopt;
    model.updates = 0;
    model.ended = ends;
    Values move = std::exchange(model.origin, model.values);
    for (std::size_t i = 0; i < move.size(); ++i) move[i] -= model.values[i];
    return move;
  }

  void Answer(const ShardInfo& shard, std::span<float> value) override {
    Model& model = this->model(shard);
    if (model.ended) return;
    for (std::size_t i = 0; i < value.size(); ++i) {
      const float shift = alpha_ * (value[i] - model.values[i]);
      model.values[i] += shift;
      model.origin[i] += shift;
    }
  }

  void Exchange(Archive& archive) override {
    archive(models_);
    for (auto& [id, model] : models_) ExchangeOptimizer(archive, id.first, model);
  }

 private:
  struct Model {
    Values values;
    Values origin;                    // from which the moves that were not sent yet are counted
    Values initial;                   // what a worker has received that has not pushed yet
    std::map<NodeId, Values> given;   // what the others have received last
    double updates = 0;               // since the last move was sent
    bool ended = false;               // the last move was sent
    std::unique_ptr<Optimizer> optimizer;

    void Exchange(Archive& archive) { archive(values, origin, initial, given, updates, ended); }
  };

  Model& model(const ShardInfo& shard) { return models_[{shard.key, shard.index}]; }

  void ExchangeOptimizer(Archive& archive, Key key, Model& model) const {
    std::vector<std::byte> saved;
    if (model.optimizer) saved = model.optimizer->Save();
    archive(saved);
    if (!archive.loading() || saved.empty()) return;
    model.optimizer = Optimizer::Make(spec_, key);
    model.optimizer->Load(saved, model.values.size());
  }

  double k_;
  float alpha_;
  OptimizerSpec spec_;
  std::map<std::pair<Key, std::uint32_t>, Model> models_;
};

// Answers a worker's report of its seconds per step with its share of the steps of the party's fastest worker, by
// the reports so far: the answer does not wait for reports of other workers.
class Speeds final : public Coordinator {
 public:
  std::vector<Reply> OnReport(NodeId from, std::span<const double> values, Time) override {
    if (values.size() != 1 || !(values[0] > 0 && std::isfinite(values[0]))) return {};
    step_s_[from] = values[0];
    double fastest = values[0];
    for (const auto& [worker, step_s] : step_s_) fastest = std::min(fastest, step_s);
    return {{from, {fastest / values[0]}}};
  }

  void Exchange(Archive& archive) override { archive(step_s_); }

 private:
  std::map<NodeId, double> step_s_;
};

const Registered<NativePolicies> registered_policy("halos", [](const Options& options) {
  return std::make_shared<Halos>(options);
});

const Registered<NativeCoordinators> registered_speeds("halos", [](const Options&) {
  return std::make_shared<Speeds>();
});

}  // namespace
}  // namespace geomx
