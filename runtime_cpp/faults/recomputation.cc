// The weights, recomputed as plain sums over the recorded contributors.
#include <algorithm>

#include "core/optimizer.h"
#include "core/replica.h"
#include "faults/history.h"
#include "faults/party_sums.h"

namespace geomx::faults {
namespace {

class Recomputation {
 public:
  Recomputation(const Experiment& experiment, const History& history)
      : experiment_(experiment), layout_(experiment.plan), history_(history), parties_(experiment, history) {}

  std::string Check() {
    if (!parties_.wrong().empty()) return parties_.wrong();
    for (Key key = 0; key < experiment_.tensors.size(); ++key) {
      for (const ShardInfo& shard : experiment_.tensors[key].shards) {
        const auto index = static_cast<std::uint32_t>(&shard - experiment_.tensors[key].shards.data());
        if (std::string wrong = CheckShard(key, index, shard); !wrong.empty()) return wrong;
        for (const auto& contribution : history_.acknowledged) {
          const auto& [worker, its_key, round] = contribution;
          if (its_key != key || counted_.contains({contribution, index})) continue;
          if (parties_.WasLost(contribution, index)) continue;
          const Place at{layout_.globals[shard.server], key, index};
          if (!history_.ending.contains(contribution) && CameAfterTheEnd(contribution, at)) continue;
          return "exactly once: acknowledged, but in no sum: " + Where(worker, key, round);
        }
      }
    }
    return {};
  }

 private:
  // A party's sum in a global round.
  struct PartySum {
    NodeId server = 0;
    Round meant = 0;  // the global round for which it was pushed
    Round own = 0;    // the party's round
    std::vector<PartySums::Term> workers = {};
  };
  struct Place {  // of a shard on its global server
    NodeId global;
    Key key;
    std::uint32_t index;
  };

  // Whether a push is in the last sum of its party, which no global server has taken before the end of the run. A party
  // may send it as its last worker leaves, which may be that end; such a worker has not waited for the answer to a
  // last push.
  bool CameAfterTheEnd(const History::Contribution& push, const Place& at) const {
    const History::Party* const party = parties_.LastOf(push, at.index);
    if (party == nullptr) return false;
    if (history_.after_end.contains(*party)) return true;
    const auto [server, incarnation, key, index] = *party;
    std::size_t taken = 0;
    const auto first = history_.taken.lower_bound({at.global, server, key, index, 0});
    const auto last = history_.taken.upper_bound({at.global, server, key, index, UINT32_MAX});
    for (auto each = first; each != last; ++each) {
      taken += static_cast<std::size_t>(std::count(each->second.begin(), each->second.end(), incarnation));
    }
    return taken < history_.closed.at(*party).size();
  }

  // Returns the sums of a round, closed by the process with this `life`, in the order of addition. Sets `wrong` if the
  // records contradict each other.
  std::vector<PartySum> SumsOf(const Place& at, std::uint32_t life, Round round, std::string& wrong) {
    std::vector<PartySum> sums;
    const History::Closed* const closed = PartialOf(at.global, at, [&](const History::Closed& each) {
      return each.round == round && each.life == life;
    });
    const auto add = [&](NodeId server, Round meant) {
      if (wrong.empty()) sums.push_back(NextSum(at, server, meant, wrong));
    };
    for (const NodeId server : layout_.servers) {
      if (closed == nullptr || !closed->without.contains(server)) add(server, round);
    }
    if (closed == nullptr) return sums;
    for (const auto& [server, meant] : closed->late) {
      if (meant > round) wrong = "a round contains a sum for a later one: " + Where(server, at.key, round);
      add(server, meant);
    }
    return sums;
  }

  // Returns the next of a party's sums for a round, in the order of their arrival.
  PartySum NextSum(const Place& at, NodeId server, Round meant, std::string& wrong) {
    PartySum sum{.server = server, .meant = meant};
    const std::size_t number = used_[{server, at.key, at.index, meant}]++;
    const auto taken = history_.taken.find({at.global, server, at.key, at.index, meant});
    if (taken == history_.taken.end() || taken->second.size() <= number) {
      wrong = "exactly once: a round has a sum that never arrived: " + Where(server, at.key, meant);
      return sum;
    }
    const std::uint32_t incarnation = taken->second[number];
    const auto begin = taken->second.begin();
    const auto before = static_cast<std::size_t>(
        std::count(begin, begin + static_cast<std::ptrdiff_t>(number), incarnation));
    const std::optional<Round> own = OwnRound(at, server, incarnation, meant, before);
    if (!own) {
      wrong = "exactly once: a round contains a sum that its server never sent: " + Where(server, at.key, meant);
      return sum;
    }
    sum.own = Numbered(experiment_, incarnation, *own);
    if (!experiment_.party_rounds.empty()) {
      const auto* terms = parties_.Of(server, incarnation, at.key, at.index, *own);
      if (terms == nullptr) {
        wrong = "exactly once: a round contains a sum of a round that its server never closed: " +
                Where(server, at.key, meant);
      } else {
        sum.workers = *terms;
      }
      return sum;
    }
    const History::Closed* const closed = PartialOf(server, at, [&](const History::Closed& each) {
      return each.incarnation == incarnation && each.round == *own;
    });
    const auto party = std::find(layout_.servers.begin(), layout_.servers.end(), server);
    for (const NodeId worker : layout_.parties[static_cast<std::size_t>(party - layout_.servers.begin())]) {
      if (closed == nullptr || !closed->without.contains(worker)) {
        sum.workers.push_back({{worker, at.key, sum.own}});
      }
    }
    return sum;
  }

  // Returns the party's round that was escalated as round `global`; the same number except with
  // `continue`. `before`: how many sums for `global` the same process had sent before.
  std::optional<Round> OwnRound(const Place& at, NodeId server, std::uint32_t incarnation, Round global,
                                std::size_t before) const {
    if (experiment_.on_loss != OnLoss::kContinue) return Nth(at, server, global);
    const auto found = history_.rounds.find({server, incarnation, at.key, at.index, global});
    if (found == history_.rounds.end() || found->second.size() <= before) return std::nullopt;
    return found->second[before];
  }

  // Returns which of a party's rounds became `global`, with `wait`: parties push each of their rounds once, and
  // begin with that after the first value that they were given.
  Round Nth(const Place& at, NodeId server, Round global) const {
    if (!experiment_.early()) return global;
    const auto pushed = history_.pushed.lower_bound({server + 1, at.key, 0});  // by the first worker
    Round round = pushed == history_.pushed.end() ? 1 : std::get<2>(pushed->first);
    if (!experiment_.party_rounds.empty()) round = parties_.First(server, at.key, at.index);
    const auto first = history_.taken.lower_bound({at.global, server, at.key, at.index, 0});
    const auto last = history_.taken.lower_bound({at.global, server, at.key, at.index, global});
    return round + static_cast<Round>(std::distance(first, last));
  }

  // Returns the record of a round that a server closed without some of its children; null: all took part.
  template <class Is>
  const History::Closed* PartialOf(NodeId server, const Place& at, Is is) const {
    const auto found = history_.partial.find({server, at.key, at.index});
    if (found == history_.partial.end()) return nullptr;
    const auto closed = std::find_if(found->second.begin(), found->second.end(), is);
    return closed == found->second.end() ? nullptr : &*closed;
  }

  std::string CheckShard(Key key, std::uint32_t index, const ShardInfo& shard) {
    const Place at{layout_.globals[shard.server], key, index};
    const auto updated = history_.updated.find({at.global, key, index});
    ShardReplay replay(experiment_, key, shard);
    Values value = PartOf(InitialOf(experiment_, key), shard);
    std::map<Round, Values> by_round = {{0, value}};
    std::map<Round, std::uint32_t> lives;  // the last counts: a new process closes again what the disk did not have
    if (updated != history_.updated.end()) {
      for (const auto& [life, round] : updated->second) lives[round] = life;
      for (const auto& [round, life] : lives) {
        std::string wrong;
        const std::vector<PartySum> sums = SumsOf(at, life, round, wrong);
        if (!wrong.empty()) return wrong;
        Values sum;
        std::uint32_t count = 0;
        bool absent = true;
        for (const PartySum& each : sums) {
          Values total = Total(each, at, shard, absent, wrong);
          ScaleUp(total, static_cast<std::uint32_t>(each.workers.size()), Workers(each));
          AddTo(sum, total);
          if (!wrong.empty()) return wrong;
          count += Workers(each);
          became_[{each.server, key, index, each.own}].emplace_back(each.meant, round);
        }
        if (count == 0) return "a round closed without any worker: " + Where(at.global, key, round);
        if (!absent || experiment_.optimizer.empty()) {  // else the optimizer does not run
          value = replay.Update(sum, count, static_cast<std::uint32_t>(layout_.workers.size()));
        }
        by_round[round] = value;
      }
    }
    return Compare(key, index, shard, by_round, value);
  }

  // Returns the number of workers that a party's sum counts for: all of them where its rounds close early.
  std::uint32_t Workers(const PartySum& sum) const {
    const auto party = std::find(layout_.servers.begin(), layout_.servers.end(), sum.server) - layout_.servers.begin();
    const std::size_t all = layout_.parties[static_cast<std::size_t>(party)].size();
    return static_cast<std::uint32_t>(experiment_.party_rounds.empty() ? sum.workers.size() : all);
  }

  static void ScaleUp(Values& sum, std::uint32_t count, std::uint32_t all) {
    if (count == all) return;
    const auto factor = static_cast<float>(static_cast<double>(all) / count);
    for (float& each : sum) each *= factor;
  }

  // Returns the sum of a party's contributions to a shard. Sets `absent` to false if one of them is not absent, and
  // `wrong` if one was never made or is in another sum.
  Values Total(const PartySum& party, const Place& at, const ShardInfo& shard, bool& absent, std::string& wrong) {
    Values total;
    for (const auto& [each, late] : party.workers) {
      const auto pushed = history_.pushed.find(each);
      if (pushed == history_.pushed.end()) {
        wrong = "exactly once: a round contains a contribution that was never made: " +
                Where(std::get<0>(each), at.key, party.own);
        return total;
      }
      if (!counted_.insert({each, at.index}).second) {
        wrong = "exactly once: a contribution is in two sums: " + Where(std::get<0>(each), at.key, party.own);
      }
      const auto& [worker, key, round] = each;
      absent = absent && ShareOf(experiment_, worker, key, round) == Share::kNothing;
      AddTo(total, PartOf(pushed->second, shard));
      places_[{each, at.index}] = {party.own, late};
    }
    return total;
  }

  std::string Compare(Key key, std::uint32_t index, const ShardInfo& shard,
                      const std::map<Round, Values>& by_round, const Values& last) const {
    for (const auto& [who, held] : history_.values) {
      const auto& [worker, its_key, round] = who;
      if (its_key != key) continue;
      if (!Expects(by_round, who, index, PartOf(held, shard))) {
        return "equal weights: not those of plain sums over the contributors: " + Where(worker, key, round) +
               ", shard " + std::to_string(index);
      }
    }
    const auto found = history_.last.find({key, index});
    if (found == history_.last.end() || !Same(found->second, last)) {
      return "equal weights: after the run, a global server does not have those of plain sums over the "
             "contributors: key " + std::to_string(key);
    }
    return {};
  }

  // Returns true if a worker holds correct weights after a round of its party: if the round was escalated,
  // those after the global round that contains it or, if the sum was late, after one from the round that it
  // was pushed for on; for weights that it requested, those after any round. Where rounds of parties close early, a
  // late worker is given those after any round, and the last answer may contain more rounds.
  bool Expects(const std::map<Round, Values>& by_round, const History::Contribution& who, std::uint32_t index,
               const Values& held) const {
    const auto& [worker, key, round] = who;
    const auto is = [&held](const auto& each) { return Same(each.second, held); };
    const bool common = experiment_.on_loss != OnLoss::kContinue && !experiment_.early();
    if (common) return is(*std::prev(by_round.upper_bound(round)));
    if (!history_.acknowledged.contains(who)) return std::any_of(by_round.begin(), by_round.end(), is);
    Round own = round;
    bool ends = false;
    if (!experiment_.party_rounds.empty()) {
      const auto place = places_.find({who, index});
      if (place == places_.end() || place->second.second) return std::any_of(by_round.begin(), by_round.end(), is);
      own = place->second.first;
      ends = history_.ending.contains(who);
    }
    const auto became = became_.find({ServerOf(worker), key, index, own});
    if (became == became_.end()) return false;
    return std::any_of(became->second.begin(), became->second.end(), [&](const auto& rounds) {
      const auto [meant, counts] = rounds;
      return std::any_of(by_round.find(meant), ends ? by_round.end() : std::next(by_round.find(counts)), is);
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
      ScaleUp(sum, count, all);
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
  const PartySums parties_;
  // By push and shard: the party's round that contains it, and whether it was late.
  std::map<std::pair<History::Contribution, std::uint32_t>, std::pair<Round, bool>> places_;
  std::set<std::pair<History::Contribution, std::uint32_t>> counted_;  // in this shard of the tensor
  std::map<std::tuple<NodeId, Key, std::uint32_t, Round>, std::size_t> used_;  // sums of a party for a round
  // By (server, key, shard, its round): the global rounds for which its sum was pushed, and that contain it.
  std::map<std::tuple<NodeId, Key, std::uint32_t, Round>, std::vector<std::pair<Round, Round>>> became_;
};

}  // namespace

std::string Recompute(const Experiment& experiment, const History& history) {
  return Recomputation(experiment, history).Check();
}

}  // namespace geomx::faults
