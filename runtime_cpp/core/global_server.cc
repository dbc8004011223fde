#include "core/global_server.h"

#include <algorithm>

namespace geomx {
namespace {

constexpr Round kMostAhead = 1 << 20;  // rounds of one global server before those of another

}  // namespace

void GlobalServer::OnValue(NodeId peer, const Header& header, Buffer value, Time now) {
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
  if (early()) {
    PushEarly(peer, header, shard, std::move(value), now);
  } else if (rules_.together) {
    Push(peer, header, shard, std::move(value), now);
  } else {
    Apply(peer, header, shard, std::move(value), now);
  }
}

void GlobalServer::OnControl(NodeId peer, const Message& message, Time now) {
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
      if (node_.config().continues || early()) return CloseWithout(now);
      for (const auto& [id, shard] : shards_) CheckParties(id.first, shard);
      return;
    case Kind::kBarrier:  // all workers of a party wait there
      NoteBarrier(peer, header.round);
      return early() ? CloseWithout(now) : void();
    case Kind::kMembers: return node_.IsChild(peer) ? OnWorkers(peer, header, now) : void();
    default: return;
  }
}

std::string GlobalServer::Objection(NodeId from, const Header& header) const {
  return admission_.Objection(from, header, Terms(header));
}

void GlobalServer::OnMember(NodeId member, bool back, Time now) {
  if (!node_.IsChild(member)) return;
  if (back) return Welcome(member);
  for (auto& [id, shard] : shards_) std::erase(shard.waiting, member);
  CloseWithout(now);
}

void GlobalServer::ListWaits(Waits& waits) const {
  for (const auto& [id, shard] : shards_) {
    if (!shard.waiting.empty()) waits.Add({.kind = Wait::Kind::kInitial, .key = id.first});
    AddWaits(id.first, shard, waits);
    AddWaitsOfTheFast(id.first, shard, waits);
  }
}

void GlobalServer::Exchange(Archive& archive) {
  ExchangeCommon(archive);
  archive(obeys_, agreeing_);
  ExchangeSpec(archive, optimizer_);
  archive.Entries(shards_, node_.config());
  for (auto& [id, shard] : shards_) ExchangeShard(archive, shard, optimizer_, id.first);
}

std::vector<SavedShard> GlobalServer::Saved() const {
  std::vector<SavedShard> saved;
  for (const auto& [id, shard] : shards_) {
    Round round = shard.round;
    for (const auto& [party, progress] : shard.parties) round = std::max(round, progress.round);
    saved.push_back(SavedOf(id, shard, round));
  }
  return saved;
}

std::size_t GlobalServer::ShardsWithRounds() const {
  const auto begun = [](const auto& child) { return child.second.round > 0; };
  const bool alone = !rules_.together;
  std::size_t count = 0;
  for (const auto& [id, shard] : shards_) {
    count += shard.round > 0 || (alone && std::ranges::any_of(shard.parties, begun)) ? 1 : 0;
  }
  return count;
}

void GlobalServer::Describe(Digest& digest) const {
  for (const auto& [id, shard] : shards_) {
    shard.sum.Describe(digest);
    digest.Count(Digest::Level::kGlobal, shard.round);
    for (const NodeId server : shard.waiting) digest.Add(std::uint64_t{server});
  }
  if (!rules_.together || early() || !left().empty()) digest.Unknown();
}

const Buffer* GlobalServer::Value(Key key, std::uint32_t shard) const {
  const Shard* found = shards_.Find({key, shard});
  return found == nullptr ? nullptr : found->weights.value().get();
}

const ShardTerms* GlobalServer::Terms(const Header& header) const {
  const Shard* found = shards_.Find({header.key, header.shard});
  return found == nullptr ? nullptr : &found->terms;
}

GlobalServer::Shard& GlobalServer::shard(const Header& header) {
  return *shards_.TryEmplace({header.key, header.shard}, node_.config()).first;
}

void GlobalServer::Initialise(const Header& header, Shard& shard, Buffer value, Time now) {
  if (shard.weights.has_value()) return;  // the first initial value stands
  shard.weights.Set(std::move(value));
  if (rules_.together) times_.Move(shard.phase, RoundPhase::kCompute, now);
  if (node_.config().continues) return AnswerWaiting(shard, now);
  SendCurrent(shard, header, shard.round, shard.weights.value(), std::exchange(shard.waiting, {}), now);
}

// ---- parties that are lost and come back ----

void GlobalServer::Welcome(NodeId party) {
  ForgetLeft(party);
  ForgetBarrier(party);
  node_.Renew(party);
  Await(party);
  node_.BeginAnew(party);
  for (auto& [id, shard] : shards_) {  // what it pushed before is not to be answered
    shard.firsts.erase(party);
    if (early()) shard.early->Forget(party);
    const auto known = shard.parties.find(party);
    if (known != shard.parties.end()) known->second.caught_up = false;
  }
}

// A party with several global servers takes part from the same round of all on. Each says from which it could, and
// the party answers with the latest. Rounds before that do not wait for it.
void GlobalServer::OnWorkers(NodeId party, const Header& header, Time now) {
  if (header.merge_count == 0) {
    node_.CloseWaiting(party, now);  // these rounds count; later, others will have gone on without them
    AddLeft(party);
    return CloseWithout(now);
  }
  if (header.round > 0) {
    if (header.round - std::min(header.round, NextRound()) > kMostAhead) {
      return node_.Fail(party, "comes back too late: in round " + std::to_string(header.round));
    }
    Postpone(party, header.round);
    return CloseWithout(now);
  }
  Welcome(party);
  if (header.key == 0) return;
  agreeing_.insert(party);
  Admit(party, NextRound());
  Message answer = ControlMessage(Kind::kMembers, {}, Admitted(party));
  answer.header.key = header.key;
  node_.Send(party, std::move(answer));
}

void GlobalServer::CloseWithout(Time now) {
  for (auto& [id, shard] : shards_) Recheck(id.first, shard, now);
}

void GlobalServer::Recheck(Key key, Shard& shard, Time now) {
  if (shard.updating) {
    Defer(shard, [this, key, &shard](Time at) { Recheck(key, shard, at); });
  } else if (!rules_.together) {
    for (const NodeId child : node_.config().children) {
      if (!Present(child) && shard.parties.contains(child)) shard.parties[child].held.reset();
    }
    ApplyHeld(key, shard, 0, false, now);
  } else if (early()) {
    CloseIfDue(shard, now);
    if (!shard.updating) AnswerWaiting(shard, now);
  } else if (Complete(shard)) {
    Close(shard.given, shard, now);
  } else {
    AnswerWaiting(shard, now);
  }
}

// A party that comes back is given the current values at once if none has to wait for it.
Round GlobalServer::NextRound() const {
  return rules_.together && !early() ? LatestOpen(shards_) + 1 : 0;
}

void GlobalServer::AnswerWaiting(Shard& shard, Time now) {
  if (shard.waiting.empty() || !shard.weights.has_value()) return;
  if (rules_.together) SkipEmptyRounds(shard);
  for (const NodeId child : std::vector(shard.waiting)) {
    if (!MayHave(child, shard)) continue;
    const Round round = rules_.together ? shard.round : CatchUp(child, shard);
    AnswerRequest(shard, child, round, shard.weights.value(), now);
  }
}

Round GlobalServer::CatchUp(NodeId child, Shard& shard) {
  Progress& party = shard.parties[child];
  Round slowest = UINT32_MAX;
  for (const auto& [id, other] : shard.parties) {
    if (id != child && Counts(id, other)) slowest = std::min(slowest, other.round);
  }
  if (slowest != UINT32_MAX) party.round = std::max(party.round, slowest);
  party.seen = shard.updates;
  party.caught_up = true;
  party.held.reset();
  shard.weights.NoteGiven(child);
  return party.round;
}

void GlobalServer::Request(NodeId peer, const Header& header, Shard& shard, Time now) {
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
    AnswerSeldom(now);
  } else if (!shard.weights.has_value()) {
    AddWaiting(shard, peer);
  } else {
    if (!rules_.together) shard.weights.NoteGiven(peer);
    SendCurrent(shard, header, shard.round, shard.weights.value(), {&peer, 1}, now);
  }
}

void GlobalServer::Instruct(NodeId peer, const Header& header, const std::string& text) {
  if (!IsAboutStates(text)) return header.round == kUnlessGiven && obeys_ ? void() : Obey(text);
  const auto part = ReadPart(text);
  if (!part) {
    for (auto& [id, shard] : shards_) SendState(peer, header.key, id, shard);
  } else if (Shard* const shard = shards_.Find(part->shard)) {
    LoadState(*part, optimizer_, *shard);
  }
}

void GlobalServer::Obey(const std::string& text) {
  auto optimizer = ParseOptimizer(text);
  if (!optimizer) return;
  obeys_ = true;
  for (auto& [id, shard] : shards_) ForgetOptimizer(shard);
  if (rules_.update_at_party) {
    for (const NodeId child : node_.config().children) {
      node_.Send(child, ControlMessage(Kind::kCommand, {text}));
    }
  } else {
    optimizer->ExpectSources(rules_.together ? 1 : node_.config().children.size());
    optimizer_ = std::move(optimizer);
  }
  node_.Emit({.kind = Event::Kind::kCommand, .text = text.substr(0, text.find('\n'))});
}

// ---- common rounds ----

void GlobalServer::Push(NodeId peer, Header header, Shard& shard, Buffer value, Time now) {
  if (!Contribute(peer, header, shard, std::move(value), now)) return;
  AnswerSeldom(now);
  if (!Complete(shard)) return CheckLeft(header.key, shard);
  times_.CameLast(PlaceOf(peer));
  Close(header, shard, now);
}

// The last contributions may be late ones, which are answered already.
void GlobalServer::OnStop(Time now) {
  if (!early()) return;
  for (auto& [id, shard] : shards_) {
    if (shard.early->open()) Close(shard.given, shard, now);
  }
}

void GlobalServer::PushEarly(NodeId peer, Header header, Shard& shard, Buffer value, Time now) {
  const Round meant = header.round;
  if (meant == 0 || meant > shard.round + 1) return FailRound(peer, header, shard.round + 1);
  const Taken taken = TakeEarly(peer, header, meant, shard, std::move(value), now);
  if (taken == Taken::kRefused) return;
  shard.early->due.insert(peer);
  CloseIfDue(shard, now);
  if (taken == Taken::kInTime || shard.early->due.erase(peer) == 0) return;  // answered when its round closes, or has been
  header.flags = 0;
  SendResult(header, shard.round, node_.config().quorum, shard.weights.value(), {&peer, 1}, now);
}

void GlobalServer::Close(Header header, Shard& shard, Time now) {
  header.flags = TakeFlags(shard);
  const NodeConfig& config = node_.config();
  NoteClosing(shard, (header.flags & kLast) != 0 ? RoundPhase::kNone : RoundPhase::kCompute, now);
  if (auto partial = Partial(header, shard)) node_.Emit(std::move(*partial));
  std::uint32_t merge_count = shard.sum.merge_count();
  Buffer sum;
  if (early()) {
    EarlySum taken = TakeSum(shard);
    sum = std::move(taken.value);
    merge_count = taken.workers;
  } else {
    sum = shard.sum.Take();
  }
  ++shard.round;
  MakeUp(sum, merge_count, config.quorum);
  // A sum over all parties has no single source, so no delay to compensate.
  const GradientSource from{merge_count, 0, (header.flags & kAbsent) != 0};
  std::vector<NodeId> present;  // filled where parties can be lost or late; otherwise all took part
  const bool some = config.continues || early();
  if (some) present = early() ? TakeDue(shard) : Participants(shard, shard.round);
  const auto finish = [=, this, &shard](const std::shared_ptr<const Buffer>& answer, Time at) {
    const auto& targets = some ? present : node_.config().children;
    Finish(header, shard.round, from.merge_count, answer, targets, at);
  };
  if (rules_.update_at_party) {
    return finish(std::make_shared<const Buffer>(std::move(sum)), now);
  }
  const auto updated = [=, this, &shard](Time at) {
    finish(shard.weights.value(), at);
    if (!node_.config().continues) return;
    AnswerWaiting(shard, at);
    AnswerSeldom(at);
  };
  if (!early()) sum = node_.sums().Decoded(header, std::move(sum));
  if (Update(header, shard, std::move(sum), optimizer_, from, false)) {
    return updated(now);
  }
  WhenUpdated(shard, updated);
}

// ---- both ----

void GlobalServer::CheckParties(Key key, const Shard& shard) {
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

void GlobalServer::Finish(const Header& header, Round round, std::uint32_t merge_count,
                          const std::shared_ptr<const Buffer>& answer, std::span<const NodeId> targets,
                          Time now) {
  ++node_.counts().rounds;
  node_.Emit({.kind = Event::Kind::kUpdated,
              .key = header.key,
              .shard = header.shard,
              .round = round});
  SendResult(header, round, merge_count, answer, targets, now);
}

std::unique_ptr<RoleLogic> MakeGlobalServer(Node& node) {
  return std::make_unique<GlobalServer>(node);
}

const Buffer* GlobalValueOf(const RoleLogic& role, Key key, std::uint32_t shard) {
  return static_cast<const GlobalServer&>(role).Value(key, shard);
}

}  // namespace geomx
