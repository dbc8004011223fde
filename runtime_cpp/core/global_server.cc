// A global server: sums what the parties push, lets the optimizer (if one was set) turn the sum into
// new weights, and answers every party with the result. Without common rounds (GlobalRounds), every
// party's push is applied and answered by itself; where updates happen at the parties, the answer
// is the sum.
#include <algorithm>
#include <map>
#include <utility>

#include "core/server_role.h"

namespace geomx {
namespace {

class GlobalServer final : public ServerRole {
 public:
  explicit GlobalServer(Node& node) : ServerRole(node), rules_(node.config().rounds) {}

  void OnValue(NodeId peer, const Header& header, Buffer value, Time now) override {
    Shard& shard = this->shard(header);
    if (!Settle(peer, header, shard)) return;
    if (shard.updating) {
      Defer(shard, [=, this, value = std::move(value)](Time at) { OnValue(peer, header, value, at); });
      return;
    }
    if (header.kind == Kind::kInit) return Initialise(header, shard, std::move(value), now);
    if (optimizer_ && !shard.weights.has_value()) {
      return node_.Fail(peer, "push of a key that was never initialised");
    }
    if (rules_.together) {
      Push(peer, header, shard, std::move(value), now);
    } else {
      Apply(peer, header, shard, std::move(value), now);
    }
  }

  void OnControl(NodeId peer, const Message& message, Time now) override {
    const Header& header = message.header;
    switch (header.kind) {
      case Kind::kPullRequest: {
        if (!admission_.MayAsk(peer, header, Terms(header), shards_.size())) return;
        Request(peer, header, this->shard(header), now);
        return;
      }
      case Kind::kCommand:
        if (const auto text = Text(peer, message)) Instruct(peer, header, *text);
        return;
      case Kind::kBye:  // all workers of a party have left
        if (!node_.IsChild(peer)) return;
        AddLeft(peer);
        if (node_.config().continues) return CloseWithout(now);
        for (const auto& [id, shard] : shards_) CheckParties(id.first, shard);
        return;
      case Kind::kMembers:  // how many workers of a party take part
        if (!node_.IsChild(peer)) return;
        if (header.merge_count > 0) return Welcome(peer);
        AddLeft(peer);
        return CloseWithout(now);
      default: return;
    }
  }

  std::string Objection(NodeId from, const Header& header) const override {
    return admission_.Objection(from, header, Terms(header));
  }

  void OnMember(NodeId member, bool back, Time now) override {
    if (!node_.IsChild(member)) return;
    if (back) return Welcome(member);
    for (auto& [id, shard] : shards_) std::erase(shard.waiting, member);
    CloseWithout(now);
  }

  void ListWaits(Waits& waits) const override {
    for (const auto& [id, shard] : shards_) {
      if (!shard.waiting.empty()) waits.Add({.kind = Wait::Kind::kInitial, .key = id.first});
      AddWaits(id.first, shard, waits);
      AddWaitsOfTheFast(id.first, shard, waits);
    }
  }

  void Describe(Digest& digest) const override {
    for (const auto& [id, shard] : shards_) {
      shard.sum.Describe(digest);
      digest.Count(Digest::Level::kGlobal, shard.round);
      for (const NodeId server : shard.waiting) digest.Add(std::uint64_t{server});
    }
    if (!rules_.together || !left().empty()) digest.Unknown();
  }

  const Buffer* Value(Key key, std::uint32_t shard) const {
    const Shard* found = shards_.Find({key, shard});
    return found == nullptr ? nullptr : found->weights.value().get();
  }

 private:
  // A party's state without common rounds.
  struct Progress {
    Round round = 0;         // of its last applied push
    std::uint64_t seen = 0;  // updates that its last answer included
    std::optional<std::pair<Header, Buffer>> held;  // too far ahead to be applied yet
  };
  struct Shard : SummedShard {
    using SummedShard::SummedShard;
    std::uint64_t updates = 0;
    std::map<NodeId, Progress> parties;
  };

  const ShardTerms* Terms(const Header& header) const {
    const Shard* found = shards_.Find({header.key, header.shard});
    return found == nullptr ? nullptr : &found->terms;
  }

  Shard& shard(const Header& header) {
    return *shards_.TryEmplace({header.key, header.shard}, node_.config()).first;
  }

  void Initialise(const Header& header, Shard& shard, Buffer value, Time now) {
    if (shard.weights.has_value()) return;  // the first initial value stands
    shard.weights.Set(std::move(value));
    if (node_.config().continues) return AnswerWaiting(shard, now);
    SendCurrent(shard, header, shard.round, shard.weights.value(), std::exchange(shard.waiting, {}), now);
  }

  // ---- parties that are lost and come back ----

  void Welcome(NodeId party) {
    ForgetLeft(party);
    node_.Renew(party);
    Await(party);
  }

  // Closes rounds that waited only for parties that are lost.
  void CloseWithout(Time now) {
    for (auto& [id, shard] : shards_) Recheck(id.first, shard, now);
  }

  void Recheck(Key key, Shard& shard, Time now) {
    if (shard.updating) {
      Defer(shard, [this, key, &shard](Time at) { Recheck(key, shard, at); });
    } else if (!rules_.together) {
      for (const NodeId child : node_.config().children) {
        if (!Present(child) && shard.parties.contains(child)) shard.parties[child].held.reset();
      }
      ApplyHeld(key, shard, 0, false, now);
    } else if (Complete(shard)) {
      Close(shard.given, shard, now);
    } else {
      AnswerWaiting(shard, now);
    }
  }

  Round NextRound() const {
    Round open = 0;
    for (const auto& [id, shard] : shards_) open = std::max(open, OpenRound(shard));
    return rules_.together ? open + 1 : 0;
  }

  // Sends the value, with the round to continue from, to parties that have come back and may have
  // it now.
  void AnswerWaiting(Shard& shard, Time now) {
    if (shard.waiting.empty() || !shard.weights.has_value()) return;
    if (rules_.together) SkipEmptyRounds(shard);
    for (const NodeId child : std::vector(shard.waiting)) {
      if (!MayHave(child, shard)) continue;
      const Round round = rules_.together ? shard.round : CatchUp(child, shard);
      AnswerRequest(shard, child, round, shard.weights.value(), now);
    }
  }

  // Without common rounds, a party that comes back must not hold up the others: it continues at the
  // round of the slowest of them.
  Round CatchUp(NodeId child, Shard& shard) {
    Progress& party = shard.parties[child];
    Round slowest = UINT32_MAX;
    for (const auto& [id, other] : shard.parties) {
      if (id != child && Present(id)) slowest = std::min(slowest, other.round);
    }
    if (slowest != UINT32_MAX) party.round = std::max(party.round, slowest);
    party.seen = shard.updates;
    return party.round;
  }

  void Request(NodeId peer, const Header& header, Shard& shard, Time now) {
    if (shard.updating) {
      Defer(shard, [=, this, &shard](Time at) { Request(peer, header, shard, at); });
      return;
    }
    admission_.Claim(peer, header, shard.terms);
    if (node_.config().continues) {
      Admit(peer, NextRound());
      shard.asked[peer] = header;
      AddWaiting(shard, peer);
      AnswerWaiting(shard, now);
    } else if (!shard.weights.has_value()) {
      AddWaiting(shard, peer);
    } else {
      SendCurrent(shard, header, shard.round, shard.weights.value(), {&peer, 1}, now);
    }
  }

  void Instruct(NodeId peer, const Header& header, const std::string& text) {
    if (!IsAboutStates(text)) return header.round == kUnlessGiven && obeys_ ? void() : Obey(text);
    const auto part = ReadPart(text);
    if (!part) {
      for (auto& [id, shard] : shards_) SendState(peer, header.key, id, shard);
    } else if (Shard* const shard = shards_.Find(part->shard)) {
      LoadState(*part, optimizer_, *shard);
    }
  }

  // Sets the optimizer, without a state. Where parties update, they get the instruction too.
  void Obey(const std::string& text) {
    auto optimizer = ParseOptimizer(text);
    if (!optimizer) return;
    obeys_ = true;
    for (auto& [id, shard] : shards_) ForgetOptimizer(shard);
    if (rules_.update_at_party) {
      for (const NodeId child : node_.config().children) {
        node_.Send(child, ControlMessage(Kind::kCommand, {text}));
      }
    } else {
      optimizer_ = std::move(optimizer);
    }
    node_.Emit({.kind = Event::Kind::kCommand, .text = text.substr(0, text.find('\n'))});
  }

  // ---- common rounds ----

  void Push(NodeId peer, Header header, Shard& shard, Buffer value, Time now) {
    if (!Contribute(peer, header, shard, std::move(value))) return;
    if (!Complete(shard)) return CheckLeft(header.key, shard);
    Close(header, shard, now);
  }

  void Close(Header header, Shard& shard, Time now) {
    header.flags = TakeFlags(shard);
    const NodeConfig& config = node_.config();
    std::uint32_t merge_count = shard.sum.merge_count();
    const bool partial = merge_count < config.quorum;
    if (partial) {
      ++node_.counts().partial_rounds;
      node_.Emit(Closing(header, shard));
    }
    Buffer sum = shard.sum.Take();
    ++shard.round;
    if (partial) MakeUp(sum, merge_count, config.quorum);
    // A sum over all parties has no single source, so no delay to compensate.
    const GradientSource from{merge_count, 0, header.flags != 0};
    std::vector<NodeId> present;  // filled where parties can be lost; otherwise all took part
    if (config.continues) present = Participants(shard.round);
    const auto finish = [=, this, &shard](const std::shared_ptr<const Buffer>& answer, Time at) {
      const auto& targets = node_.config().continues ? present : node_.config().children;
      Finish(header, shard.round, from.merge_count, answer, targets, at);
    };
    if (rules_.update_at_party) {
      return finish(std::make_shared<const Buffer>(std::move(sum)), now);
    }
    const auto updated = [=, this, &shard](Time at) {
      finish(shard.weights.value(), at);
      if (node_.config().continues) AnswerWaiting(shard, at);
    };
    if (Update(header, shard, node_.sums().Decoded(header, std::move(sum)), optimizer_, from, false)) {
      return updated(now);
    }
    WhenUpdated(shard, updated);
  }

  // ---- rounds of each party's own ----

  void Apply(NodeId peer, const Header& header, Shard& shard, Buffer encoded, Time now) {
    node_.work().aggregate.Add(node_.sums().AddedBytes(header));
    Buffer value = node_.sums().Decoded(header, std::move(encoded));
    std::uint32_t merge_count = header.merge_count;
    for (const NodeId child : node_.config().children) shard.parties.try_emplace(child);
    Progress& party = shard.parties.at(peer);
    if (header.round != party.round + 1 || party.held) {
      return FailRound(peer, header, party.round + 1);
    }
    if (std::string wrong = node_.Miscount(peer, header.merge_count); !wrong.empty()) {
      return node_.Fail(peer, std::move(wrong));
    }
    if (MakeUp(value, merge_count, node_.StandsFor(peer))) ++node_.counts().partial_rounds;
    party.held.emplace(header, std::move(value));
    party.held->first.merge_count = merge_count;
    ApplyHeld(header.key, shard, 0, false, now);
  }

  // Applies held pushes that are not too far ahead: visits all parties from `first` on, and repeats
  // while any push was applied, as that may admit others. `progress`: this pass has applied one.
  void ApplyHeld(Key key, Shard& shard, NodeId first, bool progress, Time now) {
    while (true) {
      for (auto each = shard.parties.lower_bound(first); each != shard.parties.end(); ++each) {
        auto& [id, party] = *each;
        if (!party.held || TooFarAhead(shard, party)) continue;
        progress = true;
        if (!ApplyNow(id, key, shard, party, now)) return;
      }
      if (!progress) break;
      progress = false;
      first = 0;
    }
    CheckParties(key, shard);
  }

  // Returns true if this party counts for the staleness bound of the others.
  bool Counts(NodeId party) const { return !node_.config().continues || TakesPart(party, 0); }

  bool TooFarAhead(const Shard& shard, const Progress& party) const {
    Round slowest = party.round;
    for (const auto& [id, other] : shard.parties) {
      if (Counts(id)) slowest = std::min(slowest, other.round);
    }
    return party.round - slowest > rules_.staleness_bound;
  }

  // Applies a held push and answers it. Returns false if a device is working on it; ApplyHeld
  // continues after that.
  bool ApplyNow(NodeId peer, Key key, Shard& shard, Progress& party, Time now) {
    auto [header, value] = *std::exchange(party.held, std::nullopt);
    const std::uint64_t staleness = shard.updates - party.seen;
    NodeStats& counts = node_.counts();
    counts.staleness_sum += staleness;
    counts.staleness_max = std::max(counts.staleness_max, staleness);
    ++party.round;
    party.seen = ++shard.updates;
    const GradientSource from{header.merge_count, peer, (header.flags & kAbsent) != 0};
    const auto finish = [=, this, &shard, header = header, round = party.round](Time at) {
      Finish(header, round, header.merge_count, shard.weights.value(), {&peer, 1}, at);
    };
    if (Update(header, shard, std::move(value), optimizer_, from, true)) {
      finish(now);
      return true;
    }
    WhenUpdated(shard, [=, this, &shard](Time at) {
      finish(at);
      ApplyHeld(key, shard, peer + 1, true, at);
    });
    return false;
  }

  // Parties that are held back wait for the slowest.
  void AddWaitsOfTheFast(Key key, const Shard& shard, Waits& waits) const {
    Round slowest = UINT32_MAX;
    bool held = false;
    for (const auto& [id, party] : shard.parties) {
      if (Counts(id)) slowest = std::min(slowest, party.round);
      held = held || party.held.has_value();
    }
    if (!held) return;
    Wait wait{.kind = Wait::Kind::kPush, .whom = {}, .key = key, .round = slowest + 1};
    for (const auto& [id, party] : shard.parties) {
      if (party.round == slowest) wait.whom.push_back(id);
    }
    waits.Add(wait);
  }

  // ---- both ----

  // Reports a loss if a round, or a party that is held back, waits for a party that has left.
  void CheckParties(Key key, const Shard& shard) {
    if (left().empty() || node_.config().continues) return;
    if (rules_.together) return CheckLeft(key, shard);
    for (const auto& [id, party] : shard.parties) {
      if (!party.held) continue;
      for (const NodeId gone : left()) {
        const Round reached = shard.parties.at(gone).round;
        if (party.round < reached || party.round - reached <= rules_.staleness_bound) continue;
        return node_.membership().EndRound(gone, reached, id, key, party.round + 1);
      }
    }
  }

  void Finish(const Header& header, Round round, std::uint32_t merge_count,
              const std::shared_ptr<const Buffer>& answer, std::span<const NodeId> targets,
              Time now) {
    ++node_.counts().rounds;
    node_.Emit({.kind = Event::Kind::kUpdated,
                .key = header.key,
                .shard = header.shard,
                .round = round});
    SendResult(header, round, merge_count, answer, targets, now);
  }

  const GlobalRounds rules_;
  FlatMap<ShardId, Shard, ShardHash> shards_;
  std::optional<OptimizerSpec> optimizer_;
  bool obeys_ = false;  // an instruction was given
};

}  // namespace

std::unique_ptr<RoleLogic> MakeGlobalServer(Node& node) {
  return std::make_unique<GlobalServer>(node);
}

const Buffer* GlobalValueOf(const RoleLogic& role, Key key, std::uint32_t shard) {
  return static_cast<const GlobalServer&>(role).Value(key, shard);
}

}  // namespace geomx
