#include "tests/carriers.h"

#include <algorithm>

#include "tests/check.h"

namespace geomx::check {

Carriers::Pair& Carriers::PairOf(NodeId one, NodeId other) {
  const auto [found, fresh] = pairs_.try_emplace(std::minmax(one, other));
  if (fresh) found->second.ids = {std::max(one, other), std::min(one, other)};
  return found->second;
}

Link<Message>& Carriers::LinkOf(NodeId at, NodeId to) {
  return PairOf(at, to).links[at > to ? kCaller : kCalled];
}

std::vector<NodeId> Carriers::Crash(NodeId id) {
  std::vector<NodeId> others;
  for (auto& [ids, pair] : pairs_) {
    if (ids.first != id && ids.second != id) continue;
    const End end = pair.ids[kCaller] == id ? kCaller : kCalled;
    for (const auto& carrier : pair.all) {
      if (!carrier->broken) Break(*carrier);
      Notice(pair, *carrier, end);
    }
    const std::uint32_t incarnation = pair.links[end].incarnation;
    pair.links[end] = {};
    if (end == kCaller) pair.links[end].incarnation = incarnation + 1;
    others.push_back(pair.ids[1 - end]);
  }
  return others;
}

bool Carriers::Carried(NodeId from, NodeId to) {
  Pair& pair = PairOf(from, to);
  return pair.carrying[from > to ? kCaller : kCalled] != nullptr;
}

void Carriers::Send(NodeId from, NodeId to, Message message) {
  Pair& pair = PairOf(from, to);
  const End end = from > to ? kCaller : kCalled;
  const bool numbered = IsNumbered(message.header), empty = !numbered && message.header.channel == 0;
  pair.links[end].Add(std::move(message), numbered, empty);
}

// Sends a packet to `end`. Broken connections drop it; their ends may not know yet.
void Carriers::Put(Carrier& carrier, End end, Packet packet) {
  if (!carrier.broken) carrier.ways[end].push_back(std::move(packet));
}

// Sends one message, with its sender's acknowledgement.
void Carriers::Transmit(Pair& pair, End end) {
  Link<Message>& link = pair.links[end];
  before_leaving(pair.ids[end]);
  Put(*pair.carrying[end], end == kCaller ? kCalled : kCaller,
      {std::nullopt, link.outbox.At(0), link.receipt()});
  link.outbox.Leave();
}

void Carriers::Call(Pair& pair) {
  auto carrier = std::make_shared<Carrier>();
  before_leaving(pair.ids[kCaller]);
  Put(*carrier, kCalled, {pair.links[kCaller].Call()});
  pair.all.push_back(std::move(carrier));
}

// Notifies one end of the end of a connection.
void Carriers::Notice(Pair& pair, Carrier& carrier, End end) {
  carrier.open[end] = false;
  carrier.ways[end].clear();
  if (pair.carrying[end].get() == &carrier) pair.carrying[end] = nullptr;
}

void Carriers::Break(Carrier& carrier) {
  ++broken;
  carrier.broken = true;
  for (auto& way : carrier.ways) way.resize(Between(random_, 0, way.size()));
}

void Carriers::Greeted(Pair& pair, const std::shared_ptr<Carrier>& carrier, End end,
                       const Greeting& greeting) {
  Greeting answer;
  Link<Message>& link = pair.links[end];
  before_leaving(pair.ids[end]);
  const LinkOutcome outcome =
      end == kCalled ? link.Answer(greeting, answer) : link.Answered(greeting);
  CHECK(outcome != LinkOutcome::kMismatch && outcome != LinkOutcome::kForgot);
  if (outcome != LinkOutcome::kCarried) return Notice(pair, *carrier, end);
  if (pair.carrying[end]) Notice(pair, *pair.carrying[end], end);
  pair.carrying[end] = carrier;
  if (end == kCalled) Put(*carrier, kCaller, {answer});
}

void Carriers::Arrive(Pair& pair, const std::shared_ptr<Carrier>& carrier, End end,
                      const Deliver& deliver) {
  const Packet packet = std::move(carrier->ways[end].front());
  carrier->ways[end].pop_front();
  if (packet.greeting) return Greeted(pair, carrier, end, *packet.greeting);
  Link<Message>& link = pair.links[end];
  CHECK(pair.carrying[end] == carrier);
  CHECK(link.outbox.Acknowledge(packet.received));
  if (IsNumbered(packet.message.header) && !link.arrivals.Take()) {
    ++repeats;
    return;
  }
  deliver(pair.ids[1 - end], pair.ids[end], packet.message);
}

void Carriers::AddMoves(std::vector<Move>& moves, bool disturb) {
  for (auto& [ids, each] : pairs_) {
    Pair& pair = each;
    std::erase_if(pair.all, [](const auto& carrier) { return !carrier->open[0] && !carrier->open[1]; });
    for (const End end : {kCaller, kCalled}) {
      if (!pair.carrying[end] || pair.links[end].ready() == 0) continue;
      moves.push_back([&, end](const Deliver&) { Transmit(pair, end); });
    }
    bool calling = pair.carrying[kCaller] != nullptr;
    for (const auto& carrier : pair.all) {
      calling = calling || (carrier->open[kCaller] && !carrier->broken);
      const bool lonely = carrier->broken || !carrier->open[0] || !carrier->open[1];
      for (const End end : {kCaller, kCalled}) {
        if (!carrier->open[end]) continue;
        if (!carrier->ways[end].empty()) {
          moves.push_back([&, carrier, end](const Deliver& deliver) {
            Arrive(pair, carrier, end, deliver);
          });
        }
        // A close is noticed after earlier messages; a break may be noticed before them.
        if (lonely && (carrier->broken || carrier->ways[end].empty())) {
          moves.push_back([&, carrier, end](const Deliver&) { Notice(pair, *carrier, end); });
        }
      }
      if (disturb && !lonely && Chance(random_, chances.breaks)) {
        moves.push_back([this, carrier](const Deliver&) { Break(*carrier); });
      }
    }
    if (!calling || (disturb && Chance(random_, chances.calls))) {
      moves.push_back([&](const Deliver&) { Call(pair); });
    }
  }
}

}  // namespace geomx::check
