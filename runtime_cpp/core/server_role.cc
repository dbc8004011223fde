#include "core/server_role.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "kernels/sums.h"

namespace geomx {

bool ServerRole::Settle(NodeId peer, const Header& header, SummedShard& shard) {
  for (const NodeId child : admission_.Settle(peer, header, shard.terms)) {
    std::erase(shard.waiting, child);
    shard.asked.erase(child);
  }
  return admission_.Agrees(peer, header, shard.terms);
}

// ---- pushes ----------------------------------------------------------------------------------

void ServerRole::FailRound(NodeId peer, const Header& header, Round expected) {
  node_.Fail(peer, "push of round " + std::to_string(header.round) + " in round " +
                       std::to_string(expected));
}

bool ServerRole::IsAcceptable(NodeId peer, const Header& header, const SummedShard& shard,
                              const Buffer& value) {
  const auto fail = [&](std::string reason) {
    node_.Fail(peer, std::move(reason));
    return false;
  };
  node_.work().aggregate.Add(node_.sums().AddedBytes(header));
  if (std::string wrong = node_.Miscount(peer, header.merge_count); !wrong.empty()) {
    return fail(std::move(wrong));
  }
  if (!shard.sum.Alike(value)) return fail("encoded unlike what others pushed");
  if (node_.config().non_finite == NonFinite::kRefuse && !value.empty() &&
      !kernels::AllFinite(value.data(), value.size())) {
    return fail("pushed values that are NaN or infinite");
  }
  return true;
}

bool ServerRole::Contribute(NodeId peer, const Header& header, SummedShard& shard, Buffer value, Time now) {
  if (header.round != shard.round + 1) {
    FailRound(peer, header, shard.round + 1);
    return false;
  }
  if (!IsAcceptable(peer, header, shard, value)) return false;
  if (!shard.sum.Fits(header.merge_count)) {
    node_.Fail(peer, "stands for more workers than there are");
    return false;
  }
  if (!shard.sum.Add(peer, header.merge_count, std::move(value))) {
    node_.Fail(peer, "pushed twice in one round");
    return false;
  }
  NoteContribution(peer, header, shard, now);
  return true;
}

void ServerRole::NoteContribution(NodeId peer, const Header& header, SummedShard& shard, Time now) {
  times_.Move(shard.phase, RoundPhase::kGather, now);
  if (times_.counts()) times_.Contributed(PlaceOf(peer), now);
  shard.present = shard.present || (header.flags & kAbsent) == 0;
  shard.ends = shard.ends && (header.flags & kLast) != 0;
  shard.steps += header.steps;
  told_ = told_ || (header.flags & kTold) != 0;
  if (!node_.config().continues && !early()) return;
  shard.given = header;
  if (returning_.erase(peer) > 0) {
    node_.Emit({.kind = Event::Kind::kTakesPart,
                .peer = peer,
                .key = header.key,
                .shard = header.shard,
                .round = header.round,
                .text = node_.FindPeer(peer)->name});
  }
}

void ServerRole::NoteClosing(SummedShard& shard, RoundPhase phase, Time now) {
  if (!times_.counts()) return;
  if (shard.early) {
    for (const Contribution& each : shard.early->made) times_.Released(PlaceOf(each.source), now);
  }
  const std::vector<bool>& added = shard.sum.added();
  for (std::size_t place = 0; place < added.size(); ++place) {
    if (added[place]) times_.Released(place, now);
  }
  times_.Move(shard.phase, phase, now);
}

std::size_t ServerRole::PlaceOf(NodeId child) const {
  const auto& children = node_.config().children;
  return static_cast<std::size_t>(std::lower_bound(children.begin(), children.end(), child) - children.begin());
}

std::uint8_t ServerRole::TakeFlags(SummedShard& shard) {
  const int absent = std::exchange(shard.present, false) ? 0 : kAbsent;
  return static_cast<std::uint8_t>(absent | (std::exchange(shard.ends, true) ? kLast : 0) | (told_ ? kTold : 0));
}

bool ServerRole::Update(const Header& header, SummedShard& shard, Buffer gradient,
                        const std::optional<OptimizerSpec>& optimizer, const GradientSource& from,
                        bool accumulate) {
  node_.work().update.Add(std::uint64_t{header.shard_elements} * sizeof(float));
  kernels::Device* device = node_.device().For(header.shard_elements);
  return shard.weights.Update(std::move(gradient), optimizer, header.key, from, accumulate, device);
}

void ServerRole::RunDeferred(SummedShard& shard, Time now) {
  while (!shard.updating && !shard.deferred.empty()) {
    const auto action = std::move(shard.deferred.front());
    shard.deferred.pop_front();
    action(now);
  }
}

// ---- values ----------------------------------------------------------------------------------

void ServerRole::Send(const Header& header, const std::shared_ptr<const Buffer>& value,
                      std::span<const NodeId> targets, Time now) {
  if (targets.empty()) return;
  node_.Send(targets, {header, value->empty() ? nullptr : value->data(), value}, now);
}

void ServerRole::SendResult(Header header, Round round, std::uint32_t merge_count,
                            const std::shared_ptr<const Buffer>& value,
                            std::span<const NodeId> targets, Time now) {
  header.kind = Kind::kValue;
  header.flags &= kAbsent | kLast | kTold;
  header.round = round;
  header.merge_count = merge_count;
  header.loss = std::numeric_limits<float>::quiet_NaN();
  Send(header, value, targets, now);
}

void ServerRole::SendCurrent(const SummedShard& shard, Header header, Round round,
                             const std::shared_ptr<const Buffer>& value,
                             std::span<const NodeId> targets, Time now) {
  header.kind = Kind::kValue;
  header.flags = kPlain;
  header.round = round;
  header.offset = shard.terms.info.offset;  // a request may say what it likes
  header.server = shard.terms.info.server;
  header.shard_elements = shard.terms.info.elements;
  header.steps = shard.terms.info.name;
  if (header.merge_count == 0) header.merge_count = node_.config().quorum;
  Send(header, value, targets, now);
}

bool ServerRole::AddWaiting(SummedShard& shard, NodeId peer) {
  const auto& waiting = shard.waiting;
  if (std::find(waiting.begin(), waiting.end(), peer) != waiting.end()) return false;
  shard.waiting.push_back(peer);
  return true;
}

// ---- members that are lost and come back -----------------------------------------------------

bool ServerRole::Present(NodeId child) const {
  return !node_.IsAway(child) && !left_.contains(child);
}

std::uint32_t ServerRole::PresentChildren() const {
  const auto& children = node_.config().children;
  return static_cast<std::uint32_t>(std::count_if(
      children.begin(), children.end(), [this](NodeId child) { return Present(child); }));
}

bool ServerRole::TakesPart(NodeId child, Round round) const {
  if (!Present(child)) return false;
  const auto found = first_rounds_.find(child);
  return found == first_rounds_.end() || found->second <= round;
}

bool ServerRole::TakesPart(NodeId child, const SummedShard& shard, Round round) const {
  if (TakesPart(child, round)) return true;
  const auto first = shard.firsts.find(child);
  return first != shard.firsts.end() && first->second <= round && Present(child);
}

std::vector<NodeId> ServerRole::Participants(const SummedShard& shard, Round round) const {
  std::vector<NodeId> participants = node_.config().children;
  std::erase_if(participants, [&](NodeId child) { return !TakesPart(child, shard, round); });
  return participants;
}

bool ServerRole::Complete(const SummedShard& shard) const {
  if (shard.sum.complete()) return true;
  if (!node_.config().continues || shard.sum.merge_count() == 0) return false;
  const auto& children = node_.config().children;
  return std::all_of(children.begin(), children.end(), [&](NodeId child) {
    return shard.sum.Has(child) || !TakesPart(child, shard, shard.round + 1);
  });
}

bool ServerRole::MakeUp(Buffer& sum, std::uint32_t& merge_count, std::uint32_t expected) {
  if (merge_count == expected) return false;
  const float factor = static_cast<float>(static_cast<double>(expected) / merge_count);
  for (float& value : sum) value *= factor;
  merge_count = expected;
  return true;
}

void ServerRole::Admit(NodeId child, Round next) {
  const auto found = first_rounds_.find(child);
  if (found == first_rounds_.end() || found->second != kNotAsked) return;
  found->second = next;
  returning_.insert(child);
}

void ServerRole::Postpone(NodeId child, Round first) {
  const auto found = first_rounds_.find(child);
  if (found == first_rounds_.end() || found->second == kNotAsked) return;
  found->second = std::max(found->second, first);
}

bool ServerRole::MayHave(NodeId child, const SummedShard& shard) const {
  return TakesPart(child, shard, shard.round + 1);
}

void ServerRole::AnswerRequest(SummedShard& shard, NodeId child, Round round,
                               const std::shared_ptr<const Buffer>& value, Time now) {
  std::erase(shard.waiting, child);
  SendCurrent(shard, shard.asked[child], round, value, {&child, 1}, now);
}

void ServerRole::SkipEmptyRounds(SummedShard& shard) {
  if (!Participants(shard, shard.round + 1).empty()) return;
  Round next = kNotAsked;
  for (const NodeId child : shard.waiting) {
    if (!Present(child)) continue;
    const auto found = first_rounds_.find(child);
    if (found != first_rounds_.end()) next = std::min(next, found->second);
  }
  if (next != kNotAsked) shard.round = std::max(shard.round, next - 1);
}

// ---- instructions ----------------------------------------------------------------------------

std::optional<std::string> ServerRole::Text(NodeId peer, const Message& message) {
  std::vector<std::byte> scratch;
  auto words = UnpackStrings(message.payload.Contiguous(scratch), 1);
  if (words) return std::move(words->front());
  node_.Fail(peer, "a command that is not one string");
  return std::nullopt;
}

std::string ServerRole::Impossible(const std::string& text) const {
  try {
    ParseInstruction(text, node_.config().optimizers);
    return {};
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

std::optional<OptimizerSpec> ServerRole::ParseOptimizer(const std::string& text) {
  try {
    return ParseInstruction(text, node_.config().optimizers);
  } catch (const std::invalid_argument& error) {
    node_.Emit({.kind = Event::Kind::kRefused, .text = "optimizer", .reason = error.what()});
    return std::nullopt;
  }
}

// ---- waiting ---------------------------------------------------------------------------------

// A child leaves with an answer to all its pushes, so it has contributed to no open round.
void ServerRole::CheckLeft(Key key, const SummedShard& shard) {
  if (node_.config().continues) return;
  if (left_.empty() || shard.sum.merge_count() == 0) return;
  node_.membership().EndRound(*left_.begin(), shard.round, shard.sum.First(), key,
                              shard.round + 1);
}

void ServerRole::AddWaits(Key key, const SummedShard& shard, Waits& waits) const {
  if (Workers(shard) == 0) return;
  waits.Add({.kind = Wait::Kind::kPush,
             .whom = shard.early ? Awaited(shard) : shard.sum.Lacking(),
             .key = key,
             .round = shard.round + 1});
}

}  // namespace geomx
