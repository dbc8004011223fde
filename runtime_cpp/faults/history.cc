#include "faults/history.h"

#include <algorithm>
#include <cstring>

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

}  // namespace

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

Share ShareOf(const Experiment& experiment, NodeId worker, Key key, Round round) {
  if (experiment.idle <= 0) return Share::kGradients;
  const auto draw = [](std::uint64_t number) { return static_cast<double>(number >> 11) * 0x1p-53; };
  const std::uint64_t all = Mix(experiment.seed ^ Mix(std::uint64_t{key} << 32 | round) ^ 0x1d1e);
  const std::uint64_t own = Mix(all ^ worker);
  if (draw(all) >= experiment.idle && draw(own) >= experiment.idle) return Share::kGradients;
  return (Mix(own) & 1) != 0 ? Share::kNothing : Share::kZeros;
}

Values PushOf(const Experiment& experiment, NodeId worker, Key key, Round round, const Values& value) {
  Values push(value.size());
  if (ShareOf(experiment, worker, key, round) != Share::kGradients) return push;
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

// ---- laws --------------------------------------------------------------------------------------

// Checks that every process of a global server closes rounds in order, and each once.
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
      return "equal weights: not those of the undisturbed run: " + Where(worker, key, round);
    }
  }
  if (history.values.size() != undisturbed.values.size()) return "equal weights: rounds are missing";
  if (history.absent != undisturbed.absent) return "equal weights: other rounds count as absent than undisturbed";
  if (history.last != undisturbed.last) return "equal weights: global servers end with others than undisturbed";
  return {};
}

// Checks, where rounds of parties close early and no worker is lost, that the workers of a party end with equal
// weights.
std::string EndEqually(const Experiment& experiment, const History& history) {
  const check::Layout layout(experiment.plan);
  std::map<std::pair<NodeId, Key>, const Values*> ends;  // by local server
  for (const History::Contribution& last : history.ending) {
    const auto held = history.values.find(last);
    if (held == history.values.end()) continue;
    const auto& [worker, key, round] = last;
    const NodeId server = layout.Config(worker).parents.front();
    const auto [first, fresh] = ends.emplace(std::pair(server, key), &held->second);
    if (!fresh && !Same(*first->second, held->second)) {
      return "equal weights: the workers of a party end with different ones: " + Where(worker, key, round);
    }
  }
  return {};
}

// Checks, for parties with rounds of their own, that every contribution was added once, in any order.
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
  const bool all = experiment.on_loss != OnLoss::kContinue && !experiment.early();
  if (all && !history.partial.empty()) return "a round closed incomplete";
  if (experiment.replayable && !history.ambiguous) {
    if (std::string wrong = Recompute(experiment, history); !wrong.empty()) return wrong;
  }
  if (!experiment.party_rounds.empty() && (experiment.on_loss == OnLoss::kWait || undisturbed == nullptr)) {
    if (std::string wrong = EndEqually(experiment, history); !wrong.empty()) return wrong;
  }
  if (!experiment.plan.rounds.together && experiment.on_loss != OnLoss::kContinue && !experiment.sliced()) {
    return AddedOnce(experiment, history);
  }
  const bool comparable = experiment.on_loss != OnLoss::kContinue && experiment.exact && undisturbed != nullptr;
  return comparable ? LikeUndisturbed(history, *undisturbed) : std::string();
}

}  // namespace geomx::faults
