// Programs that act on the simulated network: see traffic.h.
#include <cmath>
#include <stdexcept>
#include <string>

#include "fabric/fabric.h"

namespace geomx {
namespace {

Carried Total(const LinkStats& stats) {
  Carried bytes{.control = static_cast<double>(stats.control_bytes)};
  for (const Traffic& traffic : stats.data) bytes.data += static_cast<double>(traffic.bytes);
  return bytes;
}

}  // namespace

// Its share is relative to training's connections, so it depends on round trips as theirs do.
net::ConnectionOptions Fabric::ConnectionOf(const TransferOptions& transfer) const {
  const net::LinkOptions& link = transfer.link;
  net::ConnectionOptions options = net::LaneOptions(link, Lane::kReliable);
  options.weight *= transfer.weight;
  const net::Congestion usual = links_.empty() ? link.congestion : links_.front().options.congestion;
  if (usual != link.congestion) {
    options.weight *= net::SharingWeight(usual, link.rtt) / net::SharingWeight(link.congestion, link.rtt);
  }
  options.priority_class = transfer.priority_class;
  if (transfer.pace < net::kInfinity) {
    options.ramp.window_limit = net::kInfinity;
    options.ramp.rate_limit = transfer.pace * options.efficiency;
  }
  return options;
}

// ---- edges and links ---------------------------------------------------------------------------

Time Fabric::Next(Time due) {
  if (under_way_ == 0) return due;
  return std::min(due, schedules_.Next(due, [this](net::EdgeId edge) { return Limits(edge); }));
}

void Fabric::FollowSchedules(Time now) {
  now_ = std::max(now_, now);
  schedules_.Apply(now_, [&](net::EdgeId edge, double bytes_per_s) { Limit(edge, bytes_per_s, now_); });
}

void Fabric::Limit(net::EdgeId edge, double bytes_per_s, Time now) {
  if (const auto down = down_.find(edge); down != down_.end()) {
    down->second = bytes_per_s;
  } else {
    network_.SetCapacity(edge, bytes_per_s, now);
  }
}

void Fabric::SetCapacity(net::EdgeId edge, double bytes_per_s, Time now) {
  programmed_ = true;
  FollowSchedules(now);
  Limit(edge, bytes_per_s, now_);
  schedules_.Drop(edge);
}

void Fabric::SetEdgeUp(net::EdgeId edge, bool up, Time now) {
  if (edge >= network_.edges()) throw std::invalid_argument("there is no such edge");
  programmed_ = true;
  FollowSchedules(now);
  const auto down = down_.find(edge);
  if (up == (down == down_.end())) return;
  if (up) {
    network_.SetCapacity(edge, down->second, now_);
    down_.erase(down);
  } else {
    down_[edge] = network_.Capacity(edge);
    network_.SetCapacity(edge, 0.0, now_);
  }
}

void Fabric::ChangeLink(NodeId source, NodeId target, const net::LinkOptions& options, Time now) {
  programmed_ = true;
  FollowSchedules(now);
  const auto& links = endpoints_.at(source).links;
  const auto found =
      std::lower_bound(links.begin(), links.end(), std::pair{target, std::uint32_t{0}});
  if (found == links.end() || found->first != target) {
    throw std::invalid_argument("no link from node " + std::to_string(source) + " to " +
                                std::to_string(target));
  }
  Link& link = links_[found->second];
  CarryFormerWay(found->second, options.path);
  link.options = options;
  if (link.detour && (link.detour->due[0] || link.detour->due[1])) {  // it takes the other lanes soon
    link.detour->options = options;
    for (const Lane lane : {Lane::kReliable, Lane::kBestEffort}) {
      network_.Change(link.detour->lanes[static_cast<int>(lane)], net::LaneOptions(options, lane), now_);
    }
  }
  for (const Lane lane : {Lane::kReliable, Lane::kBestEffort}) {
    network_.Change(link.lanes[static_cast<int>(lane)], net::LaneOptions(options, lane), now_);
  }
  link.delay = network_.Delay(link.lanes[0]);
}

// A link takes another path from now on: counts what has been sent over the present one.
void Fabric::CarryFormerWay(std::uint32_t index, const std::vector<net::EdgeId>& path) {
  const Link& link = links_[index];
  if (link.options.path == path) return;
  Carried& before = carried_before_[index];
  Carry(link.options.path, Total(link.stats) - before);
  before = Total(link.stats);
}

void Fabric::Carry(const std::vector<net::EdgeId>& path, Carried bytes) {
  for (const net::EdgeId edge : path) {
    if (carried_.size() <= edge) carried_.resize(edge + 1);
    carried_[edge] += bytes;
  }
}

void Fabric::Stretch(NodeId id, double computing, double work) {
  for (const double times : {computing, work}) {
    if (!(times > 0.0) || !(times < net::kInfinity)) {
      throw std::invalid_argument("work takes a positive multiple of its time");
    }
  }
  programmed_ = true;
  Endpoint& endpoint = endpoints_.at(id);
  endpoint.stretch = work;
  if (endpoint.trainer) endpoint.trainer->Stretch(computing);
}

// ---- transfers ---------------------------------------------------------------------------------

TransferId Fabric::StartTransfer(const TransferOptions& options, double bytes, Time now) {
  if (!(bytes >= 0.0) || !(bytes < net::kInfinity)) {
    throw std::invalid_argument("a transfer's size must be finite and not negative");
  }
  programmed_ = true;
  FollowSchedules(now);
  if (free_transfers_.empty()) {
    free_transfers_.push_back(static_cast<TransferId>(transfers_.size()));
    transfers_.emplace_back();
  }
  const TransferId id = free_transfers_.back();
  const net::ConnectionOptions connection = ConnectionOf(options);
  const auto spare = std::find_if(spare_.begin(), spare_.end(),
                                  [&](net::ConnectionId each) { return network_.Idle(each); });
  Transfer& transfer = transfers_[id];
  if (spare != spare_.end()) {
    network_.Renew(*spare, connection, now_);
    transfer.connection = *spare;
    spare_.erase(spare);
  } else {
    transfer.connection = network_.AddConnection(connection);
    connection_owner_.resize(std::max<std::size_t>(connection_owner_.size(), transfer.connection + 1));
  }
  connection_owner_[transfer.connection] = {id | kTransfers, Lane::kReliable};
  free_transfers_.pop_back();
  transfer.state = Transfer::State::kOpening;
  transfer.path = options.link.path;
  transfer.bytes = bytes;
  transfer.carried = 0.0;
  ++transfer.count;
  const bool paced = options.pace < net::kInfinity;
  const Time handshake = paced ? 0 : network_.Rtt(transfer.connection);
  agenda_.Add(now_ + handshake, {Action::Kind::kOpen, 0, id, transfer.count});
  return id;
}

void Fabric::Open(const Action& action, Time now) {
  Transfer& transfer = transfers_[action.which];
  if (transfer.count != action.count || transfer.state != Transfer::State::kOpening) return;
  ++under_way_;
  transfer.state = Transfer::State::kSending;
  network_.Start(transfer.connection, transfer.bytes, now);
}

void Fabric::Sent(TransferId id, Time now) {
  Transfer& transfer = transfers_[id];
  --under_way_;
  network_.Retire(transfer.connection);
  transfer.state = Transfer::State::kArriving;
  const Time delay = network_.Delay(transfer.connection);
  const Action arrives{Action::Kind::kTransferred, 0, id, transfer.count};
  if (ending_ == Ending::kHeld) {
    held_[transfer.connection].push_back(arrives);
  } else if (ending_ == Ending::kArrives) {
    agenda_.Add(now + delay, arrives);
  }
}

void Fabric::Transferred(const Action& action) {
  const Transfer& transfer = transfers_[action.which];
  if (transfer.count != action.count || transfer.state != Transfer::State::kArriving) return;
  EndTransfer(action.which, transfer.bytes);
  Notify({.kind = Notice::Kind::kTransferred, .key = action.which});
}

void Fabric::EndTransfer(TransferId id, double sent) {
  Transfer& transfer = transfers_[id];
  Carry(transfer.path, {.data = sent - transfer.carried});
  transfer.state = Transfer::State::kFree;
  spare_.push_back(transfer.connection);
  free_transfers_.push_back(id);
}

void Fabric::ChangeTransfer(TransferId id, const TransferOptions& options, Time now) {
  Transfer& transfer = transfers_.at(id);
  if (transfer.state == Transfer::State::kFree) throw std::invalid_argument("no such transfer");
  FollowSchedules(now);
  const double sent = transfer.bytes - TransferLeft(id, now_);
  Carry(transfer.path, {.data = sent - transfer.carried});
  transfer.carried = sent;
  transfer.path = options.link.path;
  network_.Change(transfer.connection, ConnectionOf(options), now_);
}

double Fabric::CancelTransfer(TransferId id, Time now) {
  const Transfer& transfer = transfers_.at(id);
  if (transfer.state == Transfer::State::kFree) throw std::invalid_argument("no such transfer");
  FollowSchedules(now);
  const double sent = transfer.bytes - TransferLeft(id, now_);
  if (transfer.state == Transfer::State::kSending) {
    network_.Abort(transfer.connection, now_);
    network_.Retire(transfer.connection);
    --under_way_;
  }
  EndTransfer(id, sent);
  return sent;
}

double Fabric::TransferLeft(TransferId id, Time now) const {
  const Transfer& transfer = transfers_.at(id);
  switch (transfer.state) {
    case Transfer::State::kOpening: return transfer.bytes;
    case Transfer::State::kSending: return network_.Left(transfer.connection, now);
    default: return 0.0;
  }
}

double Fabric::TransferRate(TransferId id) const {
  const Transfer& transfer = transfers_.at(id);
  return transfer.state == Transfer::State::kSending ? network_.Rate(transfer.connection) : 0.0;
}

// ---- what can be seen --------------------------------------------------------------------------

double Fabric::Capacity(net::EdgeId edge, Time now) {
  FollowSchedules(now);
  return network_.Capacity(edge);
}

std::vector<double> Fabric::EdgesQueued(Time now) const {
  std::vector<double> bytes(network_.edges());
  const auto hold = [&](const std::vector<net::EdgeId>& path, double more) {
    if (more <= 0.0) return;
    for (const net::EdgeId edge : path) bytes[edge] += more;
  };
  for (const Link& link : links_) {
    const Node& source = endpoints_[link.stats.source].node->node();
    hold(link.options.path, static_cast<double>(source.QueuedBytes(link.stats.target)));
    if (link.broken) {  // messages that were chosen and have not left, or that leave again
      auto& outbox = link.broken->link.outbox;
      for (std::size_t i = 0; i < outbox.unsent(); ++i) {
        hold(link.options.path, static_cast<double>(outbox.At(i).wire_bytes()));
      }
    }
    for (const net::ConnectionId lane : link.lanes) hold(link.options.path, network_.Left(lane, now));
    hold(link.options.path, link.queued_bytes);
  }
  for (const Transfer& transfer : transfers_) {
    if (transfer.state != Transfer::State::kSending) continue;
    hold(transfer.path, network_.Left(transfer.connection, now));
  }
  return bytes;
}

std::vector<ActiveFlow> Fabric::Flows(Time now) const {
  std::vector<ActiveFlow> flows;
  for (const Link& link : links_) {
    for (const Lane lane : {Lane::kReliable, Lane::kBestEffort}) {
      const net::ConnectionId id = link.lanes[static_cast<int>(lane)];
      if (!network_.Busy(id)) continue;
      flows.push_back({.source = link.stats.source,
                       .target = link.stats.target,
                       .reliable = lane == Lane::kReliable,
                       .rate = network_.Rate(id),
                       .left = network_.Left(id, now)});
    }
  }
  for (TransferId id = 0; id < transfers_.size(); ++id) {
    if (transfers_[id].state != Transfer::State::kSending) continue;
    flows.push_back(
        {.transfer = true, .id = id, .rate = TransferRate(id), .left = TransferLeft(id, now)});
  }
  return flows;
}

std::vector<Carried> Fabric::EdgesCarried(Time now) const {
  std::vector<Carried> bytes = carried_;
  bytes.resize(network_.edges());
  const auto carry = [&](const std::vector<net::EdgeId>& path, Carried more) {
    for (const net::EdgeId edge : path) bytes[edge] += more;
  };
  for (std::uint32_t index = 0; index < links_.size(); ++index) {
    const auto before = carried_before_.find(index);
    const Carried already = before == carried_before_.end() ? Carried{} : before->second;
    carry(links_[index].options.path, Total(links_[index].stats) - already);
  }
  for (TransferId id = 0; id < transfers_.size(); ++id) {
    const Transfer& transfer = transfers_[id];
    if (transfer.state == Transfer::State::kFree) continue;
    carry(transfer.path, {.data = transfer.bytes - TransferLeft(id, now) - transfer.carried});
  }
  return bytes;
}

}  // namespace geomx
