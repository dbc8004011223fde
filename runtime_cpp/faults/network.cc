#include "faults/network.h"

#include <algorithm>

namespace geomx::faults {

using check::Chance;

// ---- time --------------------------------------------------------------------------------------

void Agenda::Add(Time at, std::function<void()> action) {
  heap_.push_back({std::max(at, now_), order_++, std::move(action)});
  std::push_heap(heap_.begin(), heap_.end(), Later);
}

bool Agenda::Step() {
  if (heap_.empty()) return false;
  std::pop_heap(heap_.begin(), heap_.end(), Later);
  const Action next = std::move(heap_.back());
  heap_.pop_back();
  now_ = next.at;
  next.act();
  return true;
}

// ---- connections -------------------------------------------------------------------------------

namespace {

constexpr Time kFirstSyn = kSecond;  // until the first SYN is repeated
constexpr Time kLongestBackOff = 2 * kSecond;
constexpr Time kLeastBackOff = 200 * kMillisecond;

Message Cross(const Message& message) {
  std::string error;
  const auto header = ParseHeader(SerializeHeader(message.header), error);
  if (!header) throw std::logic_error("a node sent a header that no node accepts: " + error);
  std::vector<std::byte> scratch;
  return {.header = *header, .payload = Payload::Copy(message.payload.Contiguous(scratch))};
}

}  // namespace

Time Network::Delay(NodeId from, NodeId to) {
  const Time delay = options_.delay(from, to);
  return delay + static_cast<Time>(check::Between(random_, 0, static_cast<std::uint64_t>(delay)));
}

bool Network::IsCut(NodeId one, NodeId other) const {
  const auto found = cuts_.find(std::minmax(one, other));
  return found != cuts_.end() && found->second.cuts > 0;
}

void Network::Call(ProcessId caller, NodeId called, Time patience, std::uint32_t attempt) {
  Syn(caller, called, agenda_.now() + patience, kFirstSyn, attempt);
}

void Network::Syn(ProcessId caller, NodeId called, Time until, Time pause, std::uint32_t attempt) {
  if (agenda_.now() > until || !handler_.alive(caller)) return;
  const Time back = agenda_.now() + Delay(caller.node, called) + Delay(called, caller.node);
  if (IsCut(caller.node, called)) {
    return agenda_.Add(agenda_.now() + pause, [=, this] { Syn(caller, called, until, 2 * pause, attempt); });
  }
  agenda_.Add(back, [=, this] {
    const std::uint32_t life = handler_.life(called);
    if (life == 0 || !handler_.alive(caller)) return;
    auto connection = std::make_shared<Connection>();
    connection->ends = {caller, ProcessId{called, life}};
    connection->attempt = attempt;
    connections_.push_back(connection);
    handler_.act(caller, [this, connection] {
      if (connection->open[kCaller]) handler_.connected(connection);
    });
  });
}

void Network::Put(const ConnectionPtr& connection, End from, Packet packet) {
  if (connection->broken || !connection->open[from]) return;
  const End to = Other(from);
  Connection::Way& way = connection->ways[to];
  packet.message = Cross(packet.message);
  way.packets.push_back(std::move(packet));
  const Time delay = Delay(connection->ends[from].node, connection->ends[to].node);
  way.last = std::max(way.last, agenda_.now() + delay);
  agenda_.Add(way.last, [this, connection, to] { Deliver(connection, to); });
}

void Network::Deliver(const ConnectionPtr& connection, End to) {
  Connection::Way& way = connection->ways[to];
  const ProcessId target = connection->ends[to];
  if (way.packets.empty()) return;
  if (IsCut(connection->ends[0].node, connection->ends[1].node)) {
    way.stalled = true;
    return;
  }
  if (!handler_.alive(target)) {
    // The new process, or its operating system, does not know this connection and answers with a reset.
    if (handler_.life(target.node) != 0) Break(connection);
    return;
  }
  handler_.act(target, [this, connection, to] {
    if (connection->open[to] && !connection->ways[to].packets.empty()) handler_.arrives(connection, to);
  });
}

void Network::Close(const ConnectionPtr& connection, End end) {
  if (!connection->open[end]) return;
  Put(connection, end, {.kind = Packet::Kind::kEnd});
  connection->open[end] = false;
  connection->ways[end].packets.clear();
}

void Network::Break(const ConnectionPtr& connection) {
  if (std::exchange(connection->broken, true)) return;
  ++resets_;
  for (const End end : {kCaller, kCalled}) {
    auto& packets = connection->ways[end].packets;
    packets.resize(check::Between(random_, 0, packets.size()));
    const ProcessId process = connection->ends[end];
    const Time late = Delay(connection->ends[Other(end)].node, process.node);
    agenda_.Add(agenda_.now() + late, [this, connection, end, process] {
      handler_.act(process, [this, connection, end] {
        if (!connection->open[end]) return;
        connection->open[end] = false;
        connection->ways[end].packets.clear();
        handler_.ended(connection, end);
      });
    });
  }
}

// ---- datagrams ---------------------------------------------------------------------------------

void Network::SendDatagram(ProcessId from, NodeId to, const Message& message) {
  for (int copies = Chance(random_, options_.duplicates) ? 2 : 1; copies > 0; --copies) {
    if (Chance(random_, options_.loss) || IsCut(from.node, to)) continue;
    Time delay = Delay(from.node, to);
    if (Chance(random_, options_.late)) delay *= 1 + static_cast<Time>(check::Between(random_, 1, 9));
    agenda_.Add(agenda_.now() + delay, [this, from, to, message] {
      const std::uint32_t life = handler_.life(to);
      if (life == 0 || IsCut(from.node, to)) return;
      handler_.act({to, life}, [=, this] { handler_.datagram(from.node, from.life, to, Cross(message)); });
    });
  }
}

// ---- faults ------------------------------------------------------------------------------------

std::vector<ConnectionPtr> Network::Between(NodeId one, NodeId other) {
  std::erase_if(connections_, [](const auto& each) { return each.expired(); });
  std::vector<ConnectionPtr> found;
  for (const auto& each : connections_) {
    ConnectionPtr connection = each.lock();
    const auto [low, high] = std::minmax(connection->ends[0].node, connection->ends[1].node);
    if (std::pair(low, high) == std::pair(std::min(one, other), std::max(one, other))) {
      found.push_back(std::move(connection));
    }
  }
  return found;
}

void Network::Reset(NodeId one, NodeId other) {
  if (IsCut(one, other)) return;  // resets are not delivered either
  for (const ConnectionPtr& connection : Between(one, other)) Break(connection);
}

void Network::Cut(NodeId one, NodeId other) {
  Gap& gap = cuts_[std::minmax(one, other)];
  if (gap.cuts++ == 0) gap.since = agenda_.now();
}

void Network::Heal(NodeId one, NodeId other) {
  Gap& gap = cuts_[std::minmax(one, other)];
  if (--gap.cuts > 0) return;
  // TCP's retransmission timer has backed off exponentially during the cut.
  const Time longest = std::min(kLongestBackOff, agenda_.now() - gap.since + kLeastBackOff);
  for (const ConnectionPtr& connection : Between(one, other)) {
    const Time back_off = static_cast<Time>(check::Between(random_, 0, static_cast<std::uint64_t>(longest)));
    for (const End to : {kCaller, kCalled}) {
      Connection::Way& way = connection->ways[to];
      if (!std::exchange(way.stalled, false)) continue;
      way.last = std::max(way.last, agenda_.now() + back_off);
      for (std::size_t i = way.packets.size(); i > 0; --i) {
        agenda_.Add(way.last, [this, connection, to] { Deliver(connection, to); });
      }
    }
  }
}

void Network::Forget(NodeId node, bool silently) {
  for (const auto& each : std::vector(connections_)) {
    const ConnectionPtr connection = each.lock();
    if (!connection) continue;
    for (const End end : {kCaller, kCalled}) {
      if (connection->ends[end].node != node || !connection->open[end]) continue;
      if (silently) {
        connection->open[end] = false;
      } else if (check::Chance(random_, 0.5)) {
        Break(connection);  // the kernel resets connections that have unread bytes
      } else {
        Close(connection, end);
      }
    }
  }
}

}  // namespace geomx::faults
