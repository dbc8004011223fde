#include "core/orders_due.h"

#include <algorithm>

namespace geomx {

void OrdersDue::Reported(std::uint32_t number, NodeId from, std::span<const double> values) {
  const auto report = members_.empty() ? std::nullopt : OverlayReport::Unpack(values);
  if (!report || !members_.contains(report->root)) return;
  Known& known = coordinators_[number];
  ++known.said;
  Item& item = known.items[OverlayItem::Of(*report)];
  if (report->round < item.round) return;
  if (report->round > item.round) {
    known.under_way -= item.under_way;
    item = {.round = report->round};
  }
  if (report->from && item.under_way > 0) {
    --item.under_way;
    --known.under_way;
  }
  if (report->what == OverlayReport::What::kReady) {
    if (!report->from) item.contributed.insert(from);
    item.waiting.insert(from);
  } else if (report->what == OverlayReport::What::kOrigin) {
    item.waiting = {report->members.begin(), report->members.end()};
  }
}

void OrdersDue::Replied(std::uint32_t number, NodeId to, std::span<const double> values) {
  const auto of = coordinators_.find(number);
  const auto order = of == coordinators_.end() ? std::nullopt : OverlayOrder::Unpack(values);
  if (!order) return;
  Known& known = of->second;
  ++known.said;
  const auto found = known.items.find({order->direction, order->root, order->key, order->shard});
  if (found == known.items.end() || found->second.round != order->round) return;
  found->second.waiting.erase(order->direction == Direction::kPush ? to : order->target);
  ++found->second.under_way;
  ++known.under_way;
}

bool OrdersDue::IsDue(const Known& known) const {
  if (known.under_way > 0) return false;
  return std::ranges::any_of(known.items, [this](const auto& each) {
    const auto& [item, state] = each;
    if (state.waiting.empty()) return false;
    return !item.up() || state.contributed.size() >= members_.at(item.root);
  });
}

void OrdersDue::ListWaits(Waits& waits) const {
  for (const auto& [number, known] : coordinators_) {
    if (!IsDue(known)) continue;
    waits.Add({.kind = Wait::Kind::kOrder, .whom = {}, .key = number, .round = known.said});
  }
}

}  // namespace geomx
