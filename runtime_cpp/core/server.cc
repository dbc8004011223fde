#include "core/server.h"

#include <algorithm>
#include <utility>

namespace geomx {

void Server::OnValue(NodeId peer, const Header& header, Buffer value, Time now) {
  Shard& shard = this->shard(header);
  if (!Settle(peer, header, shard)) return;
  if (const auto& parents = node_.config().parents;
      node_.IsParent(peer) && parents[shard.terms.info.server] != peer) {
    return node_.Fail(peer, "a value of another server's key");
  }
  if (shard.updating) {
    Defer(shard, [=, this, value = std::move(value)](Time at) { OnValue(peer, header, value, at); });
    return;
  }
  switch (header.kind) {
    case Kind::kInit: return Forward(header, std::move(value), now);
    case Kind::kPush:
      shard.terms.info.priority = header.priority;  // an initial value's is that of all keys
      if (!node_.config().rounds.workers_together) return Apply(peer, header, shard, std::move(value), now);
      return Push(peer, header, shard, std::move(value), now);
    default: return Answer(peer, header, shard, std::move(value), now);
  }
}

std::string Server::Objection(NodeId from, const Header& header) const {
  if (header.server >= node_.config().parents.size()) {
    return "no global server " + std::to_string(header.server);
  }
  return admission_.Objection(from, header, Terms(header));
}

void Server::OnLinkDown(NodeId peer, const std::string& reason, Time now) {
  if (!left().contains(peer)) RoleLogic::OnLinkDown(peer, reason, now);
}

void Server::OnControl(NodeId peer, const Message& message, Time now) {
  switch (message.header.kind) {
    case Kind::kPullRequest: {
      const ShardTerms* known = Terms(message.header);
      if (!admission_.MayAsk(peer, message.header, known, shards_.size())) return;
      if (Parent(peer, message.header)) Request(peer, message.header, this->shard(message.header), now);
      return;
    }
    case Kind::kBye: return Bye(peer, now);
    case Kind::kCommand: return Command(peer, message);
    case Kind::kBarrier: return ComeToBarrier(peer, message.header.round, now);
    case Kind::kMembers: return OnAdmitted(peer, message.header);
    default: return;
  }
}

void Server::ListWaits(Waits& waits) const {
  for (const auto& [id, shard] : shards_) {
    const Key key = id.first;
    if (shard.escalated) {
      waits.Add({.kind = Wait::Kind::kAnswer,
                 .whom = {shard.parent},
                 .key = key,
                 .round = shard.global_round});
    } else if (Workers(shard) > 0) {
      AddWaits(key, shard, waits);
    } else if (!shard.waiting.empty()) {
      waits.Add({.kind = Wait::Kind::kInitial, .whom = {shard.parent}, .key = key});
    } else if (!shard.workers.empty() && !shard.last) {
      waits.Add({.kind = Wait::Kind::kPush, .whom = Unfinished(shard), .key = key});
    }
  }
}

void Server::Exchange(Archive& archive) {
  ExchangeCommon(archive);
  archive(rejoined_, apart_, begun_, undecided_, first_, told_);
  ExchangeSpecs(archive, optimizers_);
  archive.Entries(shards_, node_.config());
  for (auto& [id, shard] : shards_) ExchangeShard(archive, shard, optimizers_[shard.parent], id.first);
  if (archive.loading()) FindAwaited();
  if (node_.config().policy) policy_->Exchange(archive);
}

std::vector<SavedShard> Server::Saved() const {
  std::vector<SavedShard> saved;
  for (const auto& [id, shard] : shards_) {
    Round round = shard.round + shard.lead;
    for (const auto& [worker, progress] : shard.workers) round = std::max(round, progress.round);
    saved.push_back(SavedOf(id, shard, round));
  }
  return saved;
}

std::size_t Server::ShardsWithRounds() const {
  const auto begun = [](const auto& child) { return child.second.round > 0; };
  const bool alone = !node_.config().rounds.workers_together;
  std::size_t count = 0;
  for (const auto& [id, shard] : shards_) {
    count += shard.round > 0 || (alone && std::ranges::any_of(shard.workers, begun)) ? 1 : 0;
  }
  return count;
}

void Server::Describe(Digest& digest) const {
  for (const auto& [id, shard] : shards_) {
    shard.sum.Describe(digest);
    digest.Count(Digest::Level::kParty, shard.round);
    digest.Count(Digest::Level::kGlobal, shard.global_round);
    digest.Add(std::uint64_t{shard.ends} << 3 | std::uint64_t{shard.last} << 2 | std::uint64_t{shard.escalated} << 1 |
               std::uint64_t{shard.value != nullptr});
    for (const NodeId worker : shard.waiting) digest.Add(std::uint64_t{worker});
    if (node_.config().policy) policy_->Describe(digest, shard.round);
  }
  if (!left().empty() || !node_.config().rounds.workers_together || early()) digest.Unknown();
}

Server::Shard& Server::shard(const Header& header) {
  return *shards_.TryEmplace({header.key, header.shard}, node_.config()).first;
}

const ShardTerms* Server::Terms(const Header& header) const {
  const Shard* found = shards_.Find({header.key, header.shard});
  return found == nullptr ? nullptr : &found->terms;
}

std::optional<NodeId> Server::Parent(NodeId peer, const Header& header) {
  const auto& parents = node_.config().parents;
  if (header.server < parents.size()) return parents[header.server];
  node_.Fail(peer, "no global server " + std::to_string(header.server));
  return std::nullopt;
}

void Server::Command(NodeId peer, const Message& message) {
  const auto text = Text(peer, message);
  if (!text) return;
  const auto& parents = node_.config().parents;
  if (std::find(parents.begin(), parents.end(), peer) != parents.end()) {
    return PassState(peer, *text, message) ? void() : Obey(peer, *text);
  }
  if (std::string wrong = Wrong(*text); !wrong.empty()) {
    return node_.Fail(peer, "an instruction that no server can carry out: " + wrong);
  }
  for (const NodeId parent : parents) {
    Message command = ControlMessage(Kind::kCommand, {*text}, message.header.round);
    command.header.key = peer;
    node_.Send(parent, std::move(command));
  }
}

void Server::Obey(NodeId parent, const std::string& text) {
  auto optimizer = ParseOptimizer(text);
  if (!optimizer) return;
  optimizer->ExpectSources(1);
  optimizers_[parent] = std::move(optimizer);
  for (auto& [id, shard] : shards_) {
    if (shard.parent == parent) ForgetOptimizer(shard);
  }
}

void Server::Bye(NodeId peer, Time now) {
  if (!node_.IsChild(peer) || !AddLeft(peer)) return;
  if (node_.config().continues) return CloseWithout(peer, now);
  for (auto& [id, shard] : shards_) {
    if (early()) {
      Recheck(shard, now);
    } else {
      CheckLeft(id.first, shard);
    }
    if (!node_.config().rounds.workers_together) SendMove(shard, now);
  }
  TellBarrier();
  if (left().size() == node_.config().children.size()) node_.membership().TellFinished();
}

// ---- up ----

void Server::Forward(const Header& header, Buffer value, Time now) {
  const auto parent = Parent(header.source, header);
  if (!parent) return;
  const auto owned = std::make_shared<const Buffer>(std::move(value));
  node_.Send({&*parent, 1}, {header, owned->empty() ? nullptr : owned->data(), owned}, now);
}

void Server::Push(NodeId peer, const Header& header, Shard& shard, Buffer value, Time now) {
  if (policy_->NeedsInitial() && shard.value == nullptr) {
    return node_.Fail(peer, "push before the initial value was asked for");
  }
  if (early()) return PushEarly(peer, header, shard, std::move(value), now);
  if (shard.escalated) return FailRound(peer, header, shard.round + 1);
  if (!Contribute(peer, header, shard, std::move(value), now)) return;
  AnswerSeldom(now);
  if (ServerRole::Complete(shard)) {
    times_.CameLast(PlaceOf(peer));
    return Close(header, shard, now);
  }
  CheckLeft(header.key, shard);
}

void Server::Close(Header header, Shard& shard, Time now) {
  const auto parent = Parent(header.source, header);
  if (!parent) return;
  std::uint32_t merge_count = Workers(shard);
  std::optional<Event> partial = Partial(header, shard);
  NoteClosing(shard, RoundPhase::kAnswer, now);
  if (early()) shard.last = HasEnded(shard);
  const auto sum = std::make_shared<Buffer>(early() ? TakePartySum(shard, merge_count)
                                                    : node_.sums().Decoded(header, shard.sum.Take()));
  ++shard.round;
  header.flags = TakeFlags(shard);
  if (early()) {
    header.flags = static_cast<std::uint8_t>((header.flags & ~kLast) | (shard.last ? kLast : 0));
  } else {
    shard.last = (header.flags & kLast) != 0;
  }
  header.steps = std::exchange(shard.steps, 0);
  ++node_.counts().rounds;
  if (partial && policy_->MakesUp()) MakeUp(*sum, merge_count, node_.config().quorum);
  const ShardInfo info = header.shard_info();
  const auto action = policy_->Complete({info, shard.round, merge_count, shard.last}, *sum);
  const bool returned = action == PartyPolicy::Action::kReturn;
  if (partial) {
    partial->above = returned ? 0 : shard.global_round + 1;
    node_.Emit(std::move(*partial));
  }
  if (returned) {
    Deliver(header, shard, sum, now);
    return TellBarrier();
  }
  if (node_.config().rounds.step_first && !Step(header, shard, *parent, merge_count, *sum)) return;
  shard.escalated = true;
  shard.parent = *parent;
  header.kind = Kind::kPush;
  header.merge_count = merge_count;
  header.round = ++shard.global_round;
  node_.Send({&*parent, 1}, {header, sum->empty() ? nullptr : sum->data(), sum}, now);
  TellBarrier();
}

bool Server::Step(const Header& header, Shard& shard, NodeId parent, std::uint32_t workers, Buffer& sum) {
  node_.work().update.Add(std::uint64_t{header.shard_elements} * sizeof(float));
  const std::optional<OptimizerSpec>& optimizer = optimizers_[parent];
  if (!optimizer || sum.empty()) return true;
  if (!shard.weights.has_value()) {
    node_.Fail(header.source, "a push of a key whose initial value no worker has requested");
    return false;
  }
  const std::uint32_t all = node_.config().rounds.workers;
  const GradientSource from{all, parent, (header.flags & kAbsent) != 0};
  shard.weights.Step(sum, *optimizer, header.key, from, static_cast<double>(workers) / all);
  return true;
}

void Server::Request(NodeId peer, const Header& header, Shard& shard, Time now) {
  if (shard.updating) {
    Defer(shard, [=, this, &shard](Time at) { Request(peer, header, shard, at); });
    return;
  }
  const bool first = admission_.Claim(peer, header, shard.terms);  // with this claim
  if (node_.config().continues || early()) {
    if (apart_ || (node_.late() && rejoined_ == 0 && MustAgree())) Rejoin(now);
    Admit(peer, early() ? 0 : LatestOpen(shards_) + 1);
    shard.asked[peer] = header;
    const bool asked = !shard.waiting.empty();
    AddWaiting(shard, peer);
    if (early() && shard.escalated && IsReturning(peer)) NoteLack(peer, {header.key, header.shard}, now);
    if (shard.value && !shard.stale) return AnswerWaiting(shard, now), AnswerSeldom(now);
    if (!undecided_.empty()) return;
    if (!asked || (first && !shard.terms.settled())) Ask(peer, header, shard);
    return;
  }
  if (shard.value) return SendCurrent(shard, header, shard.round, shard.value, {&peer, 1}, now);
  if (shard.waiting.empty() || (first && !shard.terms.settled())) Ask(peer, header, shard);
  AddWaiting(shard, peer);
}

void Server::Ask(NodeId peer, const Header& header, Shard& shard) {
  const auto parent = Parent(peer, header);
  if (!parent) return;
  Message request{.header = header};
  request.header.merge_count = Asking();
  if (rejoined_ > 0) request.header.priority = INT32_MIN;  // after the message that it has rejoined
  node_.Send(*parent, std::move(request));
  shard.parent = *parent;
}

// ---- down ----

void Server::Answer(NodeId peer, const Header& header, Shard& shard, Buffer value, Time now) {
  if ((header.flags & kPlain) != 0) return Initial(header, shard, std::move(value), now);
  const bool later = node_.config().rounds.early && header.round > shard.global_round;
  if (!shard.escalated || (header.round != shard.global_round && !later)) {
    if (node_.config().continues) return;  // answers a round from before this party lost its workers
    return node_.Fail(peer, "answer to round " + std::to_string(header.round) +
                                " that is not open");
  }
  shard.escalated = false;
  if (later) {
    shard.lead += policy_->PartyRounds(header.round) - policy_->PartyRounds(shard.global_round);
    shard.global_round = header.round;
  }
  if (!node_.config().rounds.workers_together) return Merge(shard, std::move(value), now);
  if (!node_.config().rounds.update_at_party) return Conclude(header, shard, std::move(value), now);
  const std::optional<OptimizerSpec>& optimizer = optimizers_[shard.parent];  // others may pass it on
  if (optimizer && !shard.weights.has_value()) {
    return node_.Fail(peer, "an answer to a key whose initial value no worker has requested");
  }
  const GradientSource from{header.merge_count, peer, (header.flags & kAbsent) != 0};
  const bool steps = node_.config().rounds.step_first && optimizer;
  if (Update(header, shard, std::move(value), steps ? std::nullopt : optimizer, from, steps)) {
    return Conclude(header, shard, *shard.weights.value(), now);
  }
  WhenUpdated(shard, [=, this, &shard](Time at) {
    Conclude(header, shard, *shard.weights.value(), at);
  });
}

void Server::Conclude(const Header& header, Shard& shard, Buffer value, Time now) {
  AddKept(header, shard, value);
  auto owned = std::make_shared<Buffer>(std::move(value));
  policy_->Answer(header.shard_info(), *owned);
  Deliver(header, shard, std::move(owned), now);
}

void Server::AddKept(const Header& header, const Shard& shard, Buffer& value) {
  const GlobalRounds& rounds = node_.config().rounds;
  if (!rounds.moves && !(rounds.step_first && optimizers_[shard.parent])) return;
  const std::span<const float> kept = node_.flows().Kept(shard.parent, header, rounds.moves);
  if ((header.flags & kLast) != 0 || kept.size() != value.size()) return;
  const float share = static_cast<float>(rounds.workers) / node_.config().quorum;
  for (std::size_t i = 0; i < kept.size(); ++i) value[i] += (rounds.moves ? -share : share) * kept[i];
}

void Server::Initial(const Header& header, Shard& shard, Buffer value, Time now) {
  if (shard.value && !shard.stale) return;
  if (rejoined_ > 0 && header.merge_count != Asking()) return;  // requested before the rejoin
  shard.stale = false;
  const NodeConfig& config = node_.config();
  // The round that was sent may be open still or, without common rounds, may never have been applied.
  const bool ahead = config.rounds.early || (config.continues && !config.rounds.together);
  if (ahead || (config.continues && header.round > shard.global_round)) {
    shard.global_round = header.round;
    Begin(shard, policy_->PartyRounds(header.round));
  }
  auto owned = std::make_shared<const Buffer>(std::move(value));
  policy_->Initial(header.shard_info(), *owned);
  if (shard.phase != RoundPhase::kGather) NoteNext(shard, now);
  if (node_.config().rounds.update_at_party) shard.weights.Set(*owned);
  shard.value = std::move(owned);
  if (config.continues || early()) AnswerWaiting(shard, now);
  if (early()) CloseIfDue(shard, now);
  if (config.continues || early()) return;
  const std::vector<NodeId> waiting = std::exchange(shard.waiting, {});
  SendCurrent(shard, header, shard.round, shard.value, waiting, now);
}

void Server::Begin(Shard& shard, Round rounds) {
  const GlobalRounds& rules = node_.config().rounds;
  if (rules.early || !rules.together) {
    const bool first = !begun_.has_value();
    if (first) begun_ = rounds;
    // The party may have lost its workers when it had completed a round of some shards only.
    for (auto& [id, other] : shards_) {
      if (first && !rules.early) begun_ = std::max(*begun_, other.round);
    }
    rounds = *begun_;
  }
  shard.round = std::max(shard.round, rounds);
}

void Server::Deliver(const Header& header, Shard& shard, std::shared_ptr<const Buffer> value, Time now) {
  shard.value = std::move(value);
  NoteNext(shard, now);
  const NodeConfig& config = node_.config();
  std::vector<NodeId> some;  // where workers can be lost or late
  if (early()) {
    some = TakeAnswered(shard);
    if (IsOver(shard)) {
      const std::set<NodeId> leaving = std::exchange(shard.leaving, {});
      some.insert(some.end(), leaving.begin(), leaving.end());
    }
    std::erase_if(some, [this](NodeId worker) { return !Present(worker); });
    std::sort(some.begin(), some.end());
    for (const NodeId worker : some) Give(shard, worker);
  } else if (config.continues) {
    some = Participants(shard, shard.round);
  }
  const bool all = !early() && !config.continues;
  SendResult(header, shard.round + shard.lead, config.quorum, shard.value, all ? config.children : some, now);
  if (!all) {
    AnswerWaiting(shard, now);
    AnswerSeldom(now);
  }
  if (early()) CloseIfDue(shard, now);
}

std::unique_ptr<RoleLogic> MakeServer(Node& node) { return std::make_unique<Server>(node); }

}  // namespace geomx
