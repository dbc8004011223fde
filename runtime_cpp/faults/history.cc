#include "faults/history.h"

#include <algorithm>
#include <cstring>

#include "core/optimizer.h"
#include "core/replica.h"

namespace geomx::faults {
namespace {

// splitmix64: a number for (seed, worker, key, round, element), independent of the order of the calls.
std::uint64_t Mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
  value = (value ^ value >> 27) * 0x94d049bb133111ebu;
  return value ^ value >> 31;
}

float Noise(std::uint64_t number) {
  return static_cast<float>(static_cast<double>(number >> 11) * 0x1p-52 - 1);
}

std::string Where(NodeId worker, Key key, Round round) {
  return "node" + std::to_string(worker) + " in round " + std::to_string(round) + " of key " +
         std::to_string(key);
}

Values PartOf(const Values& whole, const ShardInfo& shard) {
  Values part(shard.elements);
  std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(shard.offset), part.size(), part.begin());
  return part;
}

bool Same(const Values& one, const Values& other) {
  return one.size() == other.size() && std::memcmp(one.data(), other.data(), one.size() * sizeof(float)) == 0;
}

}  // namespace

Values PushOf(const Experiment& experiment, NodeId worker, Key key, Round round, const Values& value) {
  Values push(value.size());
  for (std::uint32_t i = 0; i < push.size(); ++i) {
    const std::uint64_t who = Mix(experiment.seed ^ Mix(std::uint64_t{worker} << 32 | key));
    const std::uint64_t what = Mix(who ^ (std::uint64_t{round} << 32 | i));
    if (experiment.integers) {
      push[i] = static_cast<float>(static_cast<int>(what % 17) - 8);
    } else {
      const float target = Noise(Mix(who ^ i));
      push[i] = 0.25f * (value[i] - target) + 0.1f * Noise(what);
    }
  }
  return push;
}

Values InitialOf(const Experiment& experiment, Key key) {
  Values value(experiment.tensors[key].elements);
  for (std::uint32_t i = 0; i < value.size(); ++i) {
    value[i] = static_cast<float>(static_cast<int>(Mix(experiment.seed + 7919 * key + i) % 201) - 100) / 16;
  }
  return value;
}

namespace {

// ---- a plain replay of who took part -----------------------------------------------------------

class Retelling {
 public:
  Retelling(const Experiment& experiment, const History& history)
      : experiment_(experiment), layout_(experiment.plan), history_(history) {}

  std::string Check() {
    for (const auto& [which, own] : history_.rounds) {
      const auto& [server, incarnation, key, index, global] = which;
      became_[{server, key, index, own}].push_back(global);
    }
    for (Key key = 0; key < experiment_.tensors.size(); ++key) {
      for (const ShardInfo& shard : experiment_.tensors[key].shards) {
        const auto index = static_cast<std::uint32_t>(&shard - experiment_.tensors[key].shards.data());
        if (std::string wrong = Tell(key, index, shard); !wrong.empty()) return wrong;
      }
    }
    for (const auto& contribution : history_.acknowledged) {
      const auto& [worker, key, round] = contribution;
      if (counted_.contains(contribution) || history_.ambiguous) continue;
      return "exactly once: acknowledged and not counted: " + Where(worker, key, round);
    }
    return {};
  }

 private:
  using Participants = std::vector<std::vector<History::Contribution>>;  // of each party

  // Empty and `wrong` is set if the records contradict each other.
  Participants WhoTookPart(NodeId global, Key key, std::uint32_t index, Round round, std::string& wrong) const {
    Participants parties;
    const std::set<NodeId> without = Without(global, 0, key, index, round, false);
    for (std::size_t party = 0; party < layout_.servers.size(); ++party) {
      const NodeId server = layout_.servers[party];
      if (without.contains(server)) continue;
      const auto taken = history_.taken.find({global, server, key, index, round});
      if (taken == history_.taken.end()) {
        wrong = "exactly once: a round counts a party whose sum never arrived: " + Where(server, key, round);
        return {};
      }
      const std::optional<Round> own = OwnRound(server, taken->second, key, index, round);
      if (!own) {
        wrong = "exactly once: a sum counts that its server never sent: " + Where(server, key, round);
        return {};
      }
      const auto lost = Without(server, taken->second, key, index, round, true);
      parties.emplace_back();
      for (const NodeId worker : layout_.parties[party]) {
        if (!lost.contains(worker)) parties.back().push_back({worker, key, *own});
      }
    }
    return parties;
  }

  // The party's round that became a global one. Without `continue` they are the same.
  std::optional<Round> OwnRound(NodeId server, std::uint32_t incarnation, Key key, std::uint32_t index,
                                Round global) const {
    if (experiment_.on_loss != OnLoss::kContinue) return global;
    const auto found = history_.rounds.find({server, incarnation, key, index, global});
    return found == history_.rounds.end() ? std::nullopt : std::optional(found->second);
  }

  // `above`: a party's server's process; its rounds are named by what they became.
  std::set<NodeId> Without(NodeId server, std::uint32_t incarnation, Key key, std::uint32_t index, Round round,
                           bool above) const {
    const auto found = history_.partial.find({server, key, index});
    if (found == history_.partial.end()) return {};
    for (const History::Closed& closed : found->second) {
      if (above && closed.incarnation != incarnation) continue;
      if ((above ? closed.above : closed.round) == round) return closed.without;
    }
    return {};
  }

  std::string Tell(Key key, std::uint32_t index, const ShardInfo& shard) {
    const NodeId global = layout_.globals[shard.server];
    const auto updated = history_.updated.find({global, key, index});
    ShardReplay replay(experiment_, key, shard);
    Values value = PartOf(InitialOf(experiment_, key), shard);
    std::map<Round, Values> by_round = {{0, value}};
    std::set<Round> known;
    if (updated != history_.updated.end()) {
      for (const auto& [life, round] : updated->second) {
        if (!known.insert(round).second) continue;  // another process repeated what the disk did not have
        std::string wrong;
        const Participants parties = WhoTookPart(global, key, index, round, wrong);
        if (!wrong.empty()) return wrong;
        Values sum;
        std::uint32_t count = 0;
        for (const auto& workers : parties) {
          Values party;
          for (const History::Contribution& each : workers) {
            const auto pushed = history_.pushed.find(each);
            if (pushed == history_.pushed.end()) {
              return "exactly once: a round counts a contribution that was never made: " +
                     Where(std::get<0>(each), key, std::get<2>(each));
            }
            counted_.insert(each);
            ++count;
            AddTo(party, PartOf(pushed->second, shard));
          }
          AddTo(sum, party);
        }
        if (count == 0) return "a round closed without any worker: " + Where(global, key, round);
        value = by_round[round] = replay.Update(sum, count, static_cast<std::uint32_t>(layout_.workers.size()));
      }
    }
    return Compare(key, index, shard, by_round, value);
  }

  std::string Compare(Key key, std::uint32_t index, const ShardInfo& shard,
                      const std::map<Round, Values>& by_round, const Values& last) const {
    for (const auto& [who, held] : history_.values) {
      const auto& [worker, its_key, round] = who;
      if (its_key != key) continue;
      if (!Expects(by_round, who, index, PartOf(held, shard))) {
        return "same weights: not those of a plain replay: " + Where(worker, key, round) + ", shard " +
               std::to_string(index);
      }
    }
    const auto found = history_.last.find({key, index});
    if (found == history_.last.end() || !Same(found->second, last)) {
      return "same weights: at the end a global server has others than a plain replay: key " + std::to_string(key);
    }
    return {};
  }

  // Whether a worker holds what it should after a round of its party: after one that became a global round,
  // what that came to; what it has asked for, after some round.
  bool Expects(const std::map<Round, Values>& by_round, const History::Contribution& who, std::uint32_t index,
               const Values& held) const {
    const auto& [worker, key, round] = who;
    const auto is = [&held](const auto& each) { return Same(each.second, held); };
    if (experiment_.on_loss != OnLoss::kContinue) return is(*std::prev(by_round.upper_bound(round)));
    if (!history_.acknowledged.contains(who)) return std::any_of(by_round.begin(), by_round.end(), is);
    const auto became = became_.find({ServerOf(worker), key, index, round});
    if (became == became_.end()) return false;
    return std::any_of(became->second.begin(), became->second.end(), [&](Round global) {
      const auto found = by_round.find(global);
      return found != by_round.end() && is(*found);
    });
  }

  NodeId ServerOf(NodeId worker) const {
    return *std::prev(std::upper_bound(layout_.servers.begin(), layout_.servers.end(), worker));
  }

  struct ShardReplay {
    ShardReplay(const Experiment& experiment, Key key, const ShardInfo& shard)
        : weights(PartOf(InitialOf(experiment, key), shard)) {
      if (experiment.optimizer.empty()) return;
      const auto spec = ParseInstruction(experiment.optimizer, {});
      optimizer = Optimizer::Make(spec, key);
    }
    Values Update(Values sum, std::uint32_t count, std::uint32_t all) {
      if (count < all) {
        const auto factor = static_cast<float>(static_cast<double>(all) / count);
        for (float& each : sum) each *= factor;
      }
      if (!optimizer) return weights = std::move(sum);
      optimizer->Update(weights, sum, {.merge_count = all});
      return weights;
    }
    Values weights;
    std::unique_ptr<Optimizer> optimizer;
  };

  static void AddTo(Values& sum, const Values& term) {
    if (sum.empty()) return void(sum = term);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += term[i];
  }

  const Experiment& experiment_;
  const check::Layout layout_;
  const History& history_;
  std::set<History::Contribution> counted_;
  std::map<std::tuple<NodeId, Key, std::uint32_t, Round>, std::vector<Round>> became_;
};

// ---- laws --------------------------------------------------------------------------------------

// No process of a global server closes a round twice, or an earlier one later.
std::string RoundsCloseOnce(const History& history) {
  for (const auto& [shard, rounds] : history.updated) {
    if (!std::is_sorted(rounds.begin(), rounds.end()) ||
        std::adjacent_find(rounds.begin(), rounds.end()) != rounds.end()) {
      const auto& [server, key, index] = shard;
      return "exactly once: node" + std::to_string(server) + " closed a round of key " + std::to_string(key) +
             " twice";
    }
  }
  return {};
}

std::string LikeUndisturbed(const History& history, const History& undisturbed) {
  for (const auto& [who, value] : history.values) {
    const auto& [worker, key, round] = who;
    const auto found = undisturbed.values.find(who);
    if (found == undisturbed.values.end() || !Same(found->second, value)) {
      return "same weights: not those of the undisturbed run: " + Where(worker, key, round);
    }
  }
  if (history.values.size() != undisturbed.values.size()) return "same weights: rounds are missing";
  if (history.last != undisturbed.last) return "same weights: the global servers end with others";
  return {};
}

// Without common rounds every contribution is added once, in any order.
std::string AddedOnce(const Experiment& experiment, const History& history) {
  for (Key key = 0; key < experiment.tensors.size(); ++key) {
    Values sum = InitialOf(experiment, key);
    for (const auto& [who, value] : history.pushed) {
      if (std::get<1>(who) != key) continue;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += value[i];
    }
    for (std::uint32_t i = 0; i < experiment.tensors[key].shards.size(); ++i) {
      const ShardInfo& shard = experiment.tensors[key].shards[i];
      const auto found = history.last.find({key, i});
      if (found == history.last.end() || !Same(found->second, PartOf(sum, shard))) {
        return "exactly once: the sum of all contributions to key " + std::to_string(key) + " differs";
      }
    }
  }
  return {};
}

}  // namespace

std::string Judge(const Experiment& experiment, const History& history, const History* undisturbed) {
  if (experiment.plan.rounds.together) {
    if (std::string wrong = RoundsCloseOnce(history); !wrong.empty()) return wrong;
  }
  if (experiment.on_loss != OnLoss::kContinue && !history.partial.empty()) return "a round closed without somebody";
  if (experiment.replayable && !history.ambiguous) {
    if (std::string wrong = Retelling(experiment, history).Check(); !wrong.empty()) return wrong;
  }
  if (!experiment.plan.rounds.together && experiment.plan.lan_push.slicers.empty() &&
      experiment.plan.wan_push.slicers.empty()) {
    return AddedOnce(experiment, history);
  }
  const bool comparable = experiment.on_loss != OnLoss::kContinue && experiment.exact && undisturbed != nullptr;
  return comparable ? LikeUndisturbed(history, *undisturbed) : std::string();
}

}  // namespace geomx::faults
