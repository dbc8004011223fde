#include "core/coordinator_host.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/plugin_failure.h"

namespace geomx {

void CoordinatorHost::Report(NodeId host, std::uint32_t number, std::span<const double> values,
                             std::int32_t priority) {
  state_.peers.Send(host, NumbersMessage(Kind::kReport, number, values, priority));
}

void CoordinatorHost::Consult(NodeId host, std::uint32_t number, std::span<const double> values,
                              Time now) {
  if (host != state_.config.id) return Report(host, number, values, INT32_MAX);
  orders_.Reported(number, host, values);
  SendReplies(number, state_.config.coordinators.at(number)->OnReport(host, values, now), now);
}

void CoordinatorHost::HandleReport(NodeId from, const Message& message, Time now) {
  std::vector<std::byte> scratch;
  const auto found = state_.config.coordinators.find(message.header.key);
  const auto values = UnpackNumbers(message.payload.Contiguous(scratch));
  if (found == state_.config.coordinators.end() || !values) {
    return state_.Fail(from, "a report nobody asked for");
  }
  if (!std::all_of(values->begin(), values->end(), [](double value) { return std::isfinite(value); })) {
    return state_.Fail(from, "a report with numbers that are NaN or infinite");
  }
  orders_.Reported(found->first, from, *values);
  if (!SendReplies(found->first, found->second->OnReport(from, *values, now), now)) {
    state_.Fail(from, "a report about strangers");
  }
}

std::string CoordinatorHost::Stranger(NodeId id) const {
  std::string known;
  for (const Peer& peer : state_.config.peers) {
    known += (known.empty() ? "" : ", ") + std::to_string(peer.id) + " (" + peer.name + ")";
  }
  return " answers node " + std::to_string(id) + ", but " + state_.config.name + " talks with " +
         known + " alone";
}

bool CoordinatorHost::SendReplies(std::uint32_t number,
                                  std::span<const Coordinator::Reply> replies, Time now) {
  bool all = true;
  for (const Coordinator::Reply& reply : replies) {
    orders_.Replied(number, reply.to, reply.values);
    if (reply.to == state_.config.id) {
      TakeReply(reply.to, number, reply.values, now);
      continue;
    }
    if (state_.peers.Find(reply.to) == nullptr) {
      const std::string whose = state_.config.coordinators.at(number)->whose();
      if (!whose.empty()) throw PluginFailure(whose + Stranger(reply.to));
      all = false;
      continue;
    }
    state_.peers.Send(reply.to, NumbersMessage(Kind::kReply, number, reply.values, INT32_MAX));
  }
  return all;
}

bool CoordinatorHost::HandleReply(NodeId from, const Message& message, Time now) {
  std::vector<std::byte> scratch;
  auto values = UnpackNumbers(message.payload.Contiguous(scratch));
  if (!values) return false;
  TakeReply(from, message.header.key, std::move(*values), now);
  return true;
}

void CoordinatorHost::TakeReply(NodeId from, std::uint32_t number, std::vector<double> values,
                                Time now) {
  if (overlay_ && overlay_->Obey(from, number, values, now)) return;
  if (state_.config.role != Role::kWorker) {
    return state_.Fail(from, "a reply of coordinator " + std::to_string(number) + " to " + state_.config.name +
                                 ", which has asked for none");
  }
  state_.Emit(
      {.kind = Event::Kind::kReply, .peer = from, .key = number, .values = std::move(values)});
}

void CoordinatorHost::HandleMember(NodeId member, bool back, Time now) {
  for (const auto& [number, coordinator] : state_.config.coordinators) {
    SendReplies(number, coordinator->OnMember(member, back, now), now);
  }
}

Time CoordinatorHost::Earliest() const {
  Time earliest = kNever;
  for (const auto& [number, coordinator] : state_.config.coordinators) {
    earliest = std::min(earliest, coordinator->NextTimeout());
  }
  return earliest;
}

void CoordinatorHost::HandleTimeout(Time now) {
  for (const auto& [number, coordinator] : state_.config.coordinators) {
    if (coordinator->NextTimeout() <= now) SendReplies(number, coordinator->OnTimeout(now), now);
  }
}

void CoordinatorHost::Exchange(Archive& archive) {
  for (const auto& [number, coordinator] : state_.config.coordinators) coordinator->Exchange(archive);
  archive(orders_);
}

}  // namespace geomx
