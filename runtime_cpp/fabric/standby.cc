// Standbys in the simulated network: a global server's records cross it like other messages, what
// depends on them leaves when the standby has confirmed them, and the standby's copy takes the
// server's place in the graph when that is lost. The rules are the core's (standby.h, gate.h), as in a
// live run.
#include "core/standby.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "fabric/fabric.h"

namespace geomx {
namespace {

// Messages of a link are chosen while fewer bytes wait for the standby; as in io/send_path.cc.
constexpr std::size_t kChosenAhead = 1024 * 1024;

}  // namespace

struct Fabric::Copy final : Replay::Handler {
  NodeId of = 0;
  std::unique_ptr<RecordedNode> node;
  std::unique_ptr<Standby> standby;
  std::map<NodeId, geomx::Link<Message>> links;

  void OnTaken(NodeId, const Message&) override {}
  void OnLinked(NodeId peer, Message message) override {
    if (IsNumbered(message.header)) links[peer].outbox.AddLeft(std::move(message));
  }
  void OnArrived(NodeId peer) override { links[peer].arrivals.Take(); }
  void OnReceived(NodeId peer, std::uint32_t count) override { links[peer].outbox.Acknowledge(count); }
  void OnRenewed(NodeId peer, const Renewal& renewal) override {
    if (renewal.anew) links.erase(peer);
  }
  void OnLinkMade(NodeId) override {}
  void OnLinkDown(NodeId, const std::string&) override {}
  void OnReady() override {}
  void OnSnapshot(Archive&) override {}
  void OnEvent(Event, Time) override {}
};

void Fabric::StandBy(NodeConfig config, NodeId standby) {
  if (!faults_) throw std::invalid_argument("a standby needs connections that may break");
  auto copy = std::make_shared<Copy>();
  copy->of = config.id;
  copy->node = std::make_unique<RecordedNode>(std::move(config));
  copy->node->node().AssumeStarted();
  copy->standby = std::make_unique<Standby>(copy->node->node(), *copy);
  endpoints_.at(copy->of).node->ReplicateTo(standby);
  for (const auto& [peer, index] : endpoints_[copy->of].links) {
    if (peer != standby) links_[index].broken->link.gate.Close(0);
  }
  endpoints_.at(standby).copy = std::move(copy);
}

void Fabric::Detour(NodeId source, NodeId target, const net::LinkOptions& options) {
  auto detour = std::make_unique<Link::Detour>();
  detour->options = options;
  const std::uint32_t index = LinksBetween(source, target).first;
  for (const Lane lane : {Lane::kReliable, Lane::kBestEffort}) {
    const net::ConnectionId id = network_.AddConnection(net::LaneOptions(options, lane));
    detour->lanes[static_cast<int>(lane)] = id;
    if (connection_owner_.size() <= id) connection_owner_.resize(id + 1);
    connection_owner_[id] = {index, lane};
  }
  links_[index].detour = std::move(detour);
}

// Takes the other path, if that is due. REQUIRES: nothing is on its way on this lane.
void Fabric::Turn(Link& link, int lane) {
  Link::Detour& detour = *link.detour;
  if (!std::exchange(detour.due[lane], false)) return;
  link.lanes[lane] = detour.lanes[lane];
  if (lane != 0) return;
  CarryFormerWay(static_cast<std::uint32_t>(&link - links_.data()), detour.options.path);
  link.options = detour.options;
  link.delay = network_.Delay(link.lanes[0]);
  link.gives_way = link.options.queueing == net::Queueing::kFifo;
}

// ---- replication -------------------------------------------------------------------------------

// The order in which messages leave is recorded, so they are chosen a little ahead.
void Fabric::ChooseAhead(Link& link, Time now) {
  const NodeId id = link.stats.source, target = link.stats.target;
  RecordedNode& source = *endpoints_[id].node;
  geomx::Link<Message>& end = link.broken->link;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < end.outbox.unsent(); ++i) bytes += end.outbox.At(i).wire_bytes();
  bool chosen = false;
  while (bytes < kChosenAhead) {
    auto message = source.PollTransmit(target, Lane::kReliable);
    if (!message) break;
    chosen = true;
    bytes += message->wire_bytes();
    Count(link, *message);
    source.Took(target, Lane::kReliable, *message, Fate::kLinked);
    const bool numbered = IsNumbered(message->header);
    end.Add(std::move(*message), numbered);
  }
  if (chosen) Replicate(id, now);
}

// Sends the standby what it does not have.
void Fabric::Replicate(NodeId id, Time now) {
  Endpoint& endpoint = endpoints_[id];
  endpoint.node->Commit();
  const Replicator& records = *endpoint.node->replicator();
  std::uint32_t way = kNone;
  for (const auto& [peer, index] : endpoint.links) {
    geomx::Link<Message>& end = links_[index].broken->link;
    end.gate.Mark(records.committed(), end.arrivals.received());
    if (peer == records.standby()) way = index;
  }
  if (way != kNone && records.HasMessage()) Send(way, Lane::kReliable, now);
}

// A standby has received records. Returns the seconds that repeating them takes.
double Fabric::Copied(NodeId id, const Message& message) {
  Endpoint& endpoint = endpoints_[id];
  if (message.header.kind != Kind::kRecords || message.header.source != endpoint.copy->of) return 0;
  Standby& standby = *endpoint.copy->standby;
  if (const auto batch = standby.Take(message)) {
    endpoint.node->node().Send(endpoint.copy->of, Confirmation(*batch));
  }
  return endpoint.costs->For(standby.replay().TakeWork());
}

// The standby has confirmed records, perhaps, or is lost.
void Fabric::LetLeave(NodeId id, Time now) {
  const Endpoint& endpoint = endpoints_[id];
  const std::uint64_t confirmed = endpoint.node->replicator()->confirmed();
  const bool alone = endpoint.node->node().IsAway(endpoint.node->replicator()->standby());
  if (alone) endpoint.node->StopReplicating();
  for (const auto& [peer, index] : endpoint.links) {
    Gate& gate = links_[index].broken->link.gate;
    if (alone) {
      gate.Open();
    } else if (!gate.Release(confirmed)) {
      continue;
    }
    Send(index, Lane::kReliable, now);
    Send(index, Lane::kBestEffort, now);
  }
}

// ---- taking over -------------------------------------------------------------------------------

// Standbys have heard that that of `id` is in its place.
void Fabric::TakeOver(NodeId id, Time now) {
  const auto keeper = std::find_if(endpoints_.begin(), endpoints_.end(), [id](const Endpoint& each) {
    return each.copy && each.copy->of == id;
  });
  if (keeper == endpoints_.end()) return;
  Endpoint& endpoint = endpoints_[id];
  const bool paused = endpoint.paused_until > now;
  if (!endpoint.dead) Die(id, now);
  const std::shared_ptr<Copy> copy = std::move(keeper->copy);
  endpoint.dead = false;
  endpoint.moved = true;
  endpoint.node = std::move(copy->node);
  endpoint.node->node().ForgetStandby(now);
  for (const NodeId peer : LinkedWith(id)) {
    if (peer == static_cast<NodeId>(keeper - endpoints_.begin())) continue;
    const auto [there, back] = LinksBetween(id, peer);
    for (const std::uint32_t index : {there, back}) {
      Link& link = links_[index];
      if (paused) link.broken->cuts = 0;  // it was the process that did not respond
      if (!link.detour) continue;
      for (const int lane : {0, 1}) {
        link.detour->due[lane] = true;
        if (!network_.Busy(link.lanes[lane])) Turn(link, lane);
      }
    }
    links_[there].broken->link = std::move(copy->links[peer]);
    endpoint.node->HandleLinkLost(peer, "its standby takes its place", now);
    endpoint.unreached.push_back(peer);
    if (links_[there].broken->cuts == 0) RemakeAfter(id, peer, 0, now);
  }
  Touch(id, now);
}

// A node that has moved is connected to one of its peers.
void Fabric::Reached(NodeId id, NodeId peer) {
  Endpoint& endpoint = endpoints_[id];
  if (std::erase(endpoint.unreached, peer) == 0 || !endpoint.unreached.empty()) return;
  Notice notice{.node = id, .kind = Notice::Kind::kMoved};
  notice.text = endpoint.node->config().name;
  Notify(std::move(notice));
}

}  // namespace geomx
