#include "core/peers.h"

#include <algorithm>
#include <bit>
#include <set>
#include <stdexcept>
#include <string>

namespace geomx {

Peers::Peers(const NodeConfig& config) : config_(config) {
  for (const Peer& peer : config_.peers) ids_.push_back(peer.id);
  std::sort(ids_.begin(), ids_.end());
  ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
  neighbours_.resize(ids_.size());
  slots_.assign(std::bit_ceil(2 * ids_.size() + 2), {0, kFree});
  shift_ = 32 - std::countr_zero(slots_.size());
  for (std::uint32_t place = 0; place < ids_.size(); ++place) {
    std::size_t at = Start(ids_[place]);
    while (slots_[at].place != kFree) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {ids_[place], place};
  }
  for (const Peer& peer : config_.peers) {
    Neighbour& neighbour = Get(peer.id);
    neighbour.peer = &peer;
    for (const Direction direction : {Direction::kPush, Direction::kPull}) {
      const auto found = config_.links.find({peer.id, direction});
      neighbour.plans[static_cast<int>(direction)] =
          found == config_.links.end() ? &kDensePlan : &found->second;
    }
    neighbour.child = std::binary_search(config_.children.begin(), config_.children.end(), peer.id);
    if (neighbour.child) {
      const auto found = config_.stands_for.find(peer.id);
      neighbour.stands_for = found == config_.stands_for.end() ? 1 : found->second;
    }
    neighbour.parent = std::find(config_.parents.begin(), config_.parents.end(), peer.id) !=
                       config_.parents.end();
  }
}

Peers::Neighbour& Peers::Get(NodeId id) {
  if (Neighbour* found = FindNeighbour(id)) return *found;
  throw std::logic_error(config_.name + " has no peer " + std::to_string(id));
}

const Peer* Peers::Find(NodeId id) const {
  const Neighbour* found = FindNeighbour(id);
  return found == nullptr ? nullptr : found->peer;
}

bool Peers::IsChild(NodeId id) const {
  const Neighbour* found = FindNeighbour(id);
  return found != nullptr && found->child;
}

bool Peers::IsParent(NodeId id) const {
  const Neighbour* found = FindNeighbour(id);
  return found != nullptr && found->parent;
}

std::size_t Peers::PresentChildren() const {
  if (away_ == 0) return config_.children.size();
  const auto present = [](const Neighbour& each) { return each.child && !each.away; };
  return static_cast<std::size_t>(std::count_if(neighbours_.begin(), neighbours_.end(), present));
}

std::uint32_t Peers::StandsFor(NodeId id) const {
  const Neighbour* found = FindNeighbour(id);
  return found == nullptr ? 1 : found->stands_for;
}

const LinkPlan& Peers::Plan(NodeId id, Direction direction) const {
  const Neighbour* found = FindNeighbour(id);
  return found == nullptr ? kDensePlan : *found->plans[static_cast<int>(direction)];
}

Digest::Level Peers::LevelOf(NodeId id) const {
  if (config_.role == Role::kGlobalServer) return Digest::Level::kGlobal;
  const bool up = config_.role == Role::kServer && IsParent(id);
  return up ? Digest::Level::kGlobal : Digest::Level::kParty;
}

void Peers::SetAway(NodeId id, bool away) {
  Neighbour& neighbour = Get(id);
  if (neighbour.away == away) return;
  away_ += away ? 1 : -1;
  neighbour.away = away;
  neighbour.queue = {};
}

void Peers::Queue(Neighbour& target, Message&& message) {
  message.header.source = config_.id;
  message.header.payload_bytes = static_cast<std::uint32_t>(message.payload.size());
  target.queue.Push(std::move(message));
  if (std::exchange(target.dirty, epoch_) != epoch_) dirty_.push_back(target.peer->id);
}

bool Peers::Poll(NodeId id, Lane lane, Message& message) {
  Neighbour* found = FindNeighbour(id);
  if (found == nullptr || !found->queue.Pop(lane, message)) return false;
  if (lane == Lane::kReliable && message.header.kind != Kind::kHeartbeat) found->spoken_to = true;
  return true;
}

bool Peers::HasHeartbeat(NodeId id) const {
  const Neighbour* found = FindNeighbour(id);
  return found != nullptr && found->queue.HasHeartbeat();
}

bool Peers::Quiet(NodeId id) const {
  const Neighbour* found = FindNeighbour(id);
  return found == nullptr || found->queue.Quiet();
}

bool Peers::HasMessage(NodeId id, Lane lane) const {
  const Neighbour* found = FindNeighbour(id);
  return found != nullptr && !found->queue.Empty(lane);
}

std::size_t Peers::QueuedBytes(NodeId id) const {
  const Neighbour* found = FindNeighbour(id);
  return found == nullptr ? 0 : found->queue.queued_bytes();
}

void Peers::Exchange(Archive& archive) {
  archive(dirty_);
  const std::set<NodeId> dirty(dirty_.begin(), dirty_.end());
  for (Neighbour& neighbour : neighbours_) {
    archive.Name(neighbour.peer->name);
    bool away = neighbour.away;
    archive(away);
    if (archive.loading()) SetAway(neighbour.peer->id, away);
    archive(neighbour.spoken_to, neighbour.queue);
    const bool queued = !neighbour.queue.Empty(Lane::kReliable) || !neighbour.queue.Empty(Lane::kBestEffort);
    if (!archive.loading()) continue;
    const bool known = dirty.contains(neighbour.peer->id);
    if (known || queued) neighbour.dirty = epoch_;
    if (queued && !known) dirty_.push_back(neighbour.peer->id);
  }
}

void Peers::Describe(Digest& digest) const {
  for (const Neighbour& neighbour : neighbours_) {
    neighbour.queue.Describe(digest, LevelOf(neighbour.peer->id));
  }
  for (const NodeId peer : dirty_) digest.Add(std::uint64_t{peer});
}

}  // namespace geomx
