// Datagrams where routers ignore their marks: the sender holds them back behind other messages and paces
// them (net/pacer.h). Where edges are FIFO queues, it hands them to the network at that pace, whether or
// not earlier ones have left: they stand in queues, in which others wait behind them.
#include "fabric/fabric.h"

namespace geomx {

namespace {

constexpr int kDatagramLane = static_cast<int>(Lane::kBestEffort);

}  // namespace

bool Fabric::SendDatagrams(std::uint32_t index, Time now) {
  Link& link = links_[index];
  while (!MustWait(index, now)) {
    const bool idle = !network_.Busy(link.lanes[kDatagramLane]);
    if (idle && link.detour) Turn(link, kDatagramLane);
    const std::uint32_t place = Take(index, Lane::kBestEffort, now);
    if (place == kNone) break;
    if (!idle) {
      link.queued.emplace_back(place, now);
      link.queued_bytes += static_cast<double>(messages_[place].message.wire_bytes());
    }
    network_.SetBehind(link.lanes[kDatagramLane], link.queued_bytes, link.pacer.rate());
    if (idle) Put(link, kDatagramLane, place, now, now);
  }
  return network_.Busy(link.lanes[kDatagramLane]);
}

void Fabric::PutQueued(Link& link, Time now) {
  if (link.queued.empty()) return;
  const auto [place, since] = link.queued.front();
  link.queued.pop_front();
  link.queued_bytes -= static_cast<double>(messages_[place].message.wire_bytes());
  if (link.queued.empty()) link.queued_bytes = 0.0;  // without rounding errors
  network_.SetBehind(link.lanes[kDatagramLane], link.queued_bytes, link.pacer.rate());
  Put(link, kDatagramLane, place, since, now);
}

bool Fabric::MustWait(std::uint32_t index, Time now) {
  Link& link = links_[index];
  if (link.pacing) return true;
  const NodeId source = link.stats.source;
  if (!endpoints_[source].node->HasMessage(link.stats.target, Lane::kBestEffort)) return false;
  const Time until = net::HeldUntil(network_, link.options, link.lanes[0], link.pacer, now);
  if (until == 0) return false;
  if (until != kNever) {
    link.pacing = true;
    agenda_.Add(until, {Action::Kind::kPace, source, index});
  }
  return true;
}

}  // namespace geomx
