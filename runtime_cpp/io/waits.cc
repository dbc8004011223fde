// The driver's reports of the nodes that this one waits for.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "io/driver.h"

namespace geomx::io {

// Heartbeats do not count: one may be due at every look.
bool Driver::AllSettled() {
  return std::all_of(outlets_.begin(), outlets_.end(), [this](const auto& each) {
    const PeerLink& link = sessions_.LinkOf(each.first);
    return link.closed || (node_->Quiet(each.first) && link.frames.all_received());
  });
}

void Driver::LookAtWaits(Time now) {
  settled_ = node_ && AllSettled();
  const auto name = [&](NodeId id) {
    const Peer* peer = node_ ? node_->FindPeer(id) : nullptr;
    return peer ? peer->name : "the scheduler at " + join_address_;
  };
  const auto key = [&](Key number) { return KeyName(number); };
  const auto coordinator = [&](std::uint32_t number) {
    const std::string whose = node_->config().coordinators.at(number)->whose();
    return whose.empty() ? "coordinator " + std::to_string(number) : whose;
  };
  const std::vector<Wait> waits =
      closing_ || status_.failure() ? std::vector<Wait>() : ListWaits();
  const std::string way = "the scheduler at " + sessions_.Trying();
  for (const std::string& line : watch_.Look(now, waits, name_, name, key, coordinator, way)) {
    Tell(Severity::kWarning, line);
  }
}

std::vector<Wait> Driver::ListWaits() const {
  if (!node_ && join_address_.empty()) return {};  // no instruction has arrived
  if (!node_ && joined_) return {};
  if (!node_) {
    const bool there = sessions_.Trying().empty();
    return {{.kind = there ? Wait::Kind::kRoster : Wait::Kind::kScheduler, .whom = {kUnknownPeer}}};
  }
  const auto& scheduler = node_->config().scheduler;
  if (scheduler && !started_) {
    Wait wait{.kind = Wait::Kind::kConnect, .whom = {}};
    for (const Peer& peer : node_->config().peers) {
      if (!sessions_.Knows(peer.id)) wait.whom.push_back(peer.id);
    }
    std::sort(wait.whom.begin(), wait.whom.end());
    if (wait.whom.empty()) wait = {.kind = Wait::Kind::kStart, .whom = {*scheduler}};
    return {wait};
  }
  std::vector<Wait> waits = node_->ListWaits();
  if (const auto number = status_.awaited()) {
    const auto host = hosts_.find(*number);
    if (host != hosts_.end()) {
      waits.push_back({.kind = Wait::Kind::kReply, .whom = {host->second}, .key = *number});
    }
  }
  return waits;
}

std::string Driver::KeyName(Key key) const {
  const auto found = key_names_.find(key);
  return found == key_names_.end() ? "key " + std::to_string(key) : found->second;
}

void Driver::Leave() {
  const std::uint64_t bad = node().stats().non_finite_pushes;
  if (bad > 1) {
    Tell(Severity::kWarning, name_ + " made " + std::to_string(bad) +
           " pushes in all with values that are NaN or infinite");
  }
  node().Leave(Now());
}

void Driver::GiveUpOnMissing(const std::string& why) {
  const std::vector<std::string> missing = Missing();
  for (const Peer& peer : node().config().peers) {
    if (missing.empty() || peer.name != missing.front()) continue;
    std::string others;
    for (std::size_t i = 1; i < missing.size(); ++i) others += ", " + missing[i];
    node_->HandleLinkDown(peer.id, why + (others.empty() ? "" : "; nor did" + others.substr(1)),
                          Now());
  }
  DrainEvents();
}

}  // namespace geomx::io
