#include "faults/party_sums.h"

#include <algorithm>

namespace geomx::faults {

PartySums::PartySums(const Experiment& experiment, const History& history)
    : experiment_(experiment), history_(history), layout_(experiment.plan) {
  for (const auto& [party, closed] : history.closed) Follow(party, closed);
  for (const auto& [from, pushes] : history.arrived) {
    const auto& [server, incarnation, key, shard] = from.first;
    if (!history.ended.contains({server, incarnation})) continue;
    for (const History::Contribution& push : pushes) lost_.insert({push, shard});
  }
}

// The pushes of a worker are added in the order of their arrival: first those for rounds that had closed, then that in
// time, then another for the same round, by a process that took the place of the one before.
void PartySums::Follow(const History::Party& party, const std::map<Round, std::uint32_t>& closed) {
  const auto& [server, incarnation, key, shard] = party;
  const auto place = std::find(layout_.servers.begin(), layout_.servers.end(), server) - layout_.servers.begin();
  const std::vector<NodeId>& workers = layout_.parties[static_cast<std::size_t>(place)];
  std::map<NodeId, std::size_t> next;
  const auto take = [&](NodeId worker, bool late) {
    const auto pushes = history_.arrived.find({party, worker});
    const std::size_t number = next[worker]++;
    if (pushes != history_.arrived.end() && number < pushes->second.size()) return Term{pushes->second[number], late};
    const char* const what = "exactly once: a party's round has a push that never arrived: ";
    if (wrong_.empty()) wrong_ = what + Where(worker, key, 0);
    return Term{};
  };
  for (const auto& [round, life] : closed) {
    const History::Closed* partial = nullptr;
    if (const auto found = history_.partial.find({server, key, shard}); found != history_.partial.end()) {
      for (const History::Closed& each : found->second) {
        if (each.life == life && each.round == round) partial = &each;
      }
    }
    std::map<NodeId, Term> in_time;
    std::vector<Term> extra(partial == nullptr ? 0 : partial->late.size());
    const auto add_extra = [&](NodeId worker, bool before) {
      for (std::size_t i = 0; i < extra.size(); ++i) {
        const auto [source, meant] = partial->late[i];
        if (source == worker && (meant < round) == before) extra[i] = take(worker, before);
      }
    };
    for (const NodeId worker : workers) {
      add_extra(worker, true);
      if (partial == nullptr || !partial->without.contains(worker)) in_time[worker] = take(worker, false);
      add_extra(worker, false);
    }
    std::vector<Term>& terms = sums_[{party, round}];
    for (const auto& [worker, term] : in_time) terms.push_back(term);
    terms.insert(terms.end(), extra.begin(), extra.end());
    if (round != closed.rbegin()->first) continue;
    for (const Term& term : terms) last_.insert({{term.push, shard}, party});
  }
}

const std::vector<PartySums::Term>* PartySums::Of(NodeId server, std::uint32_t incarnation, Key key,
                                                  std::uint32_t shard, Round round) const {
  const History::Party party{server, Era(experiment_, incarnation), key, shard};
  const auto found = sums_.find({party, round});
  return found == sums_.end() ? nullptr : &found->second;
}

Round PartySums::First(NodeId server, Key key, std::uint32_t shard) const {
  const auto found = history_.closed.find({server, 0, key, shard});
  return found == history_.closed.end() || found->second.empty() ? 1 : found->second.begin()->first;
}

}  // namespace geomx::faults
