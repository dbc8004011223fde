// What the driver counts, for reports and metrics. See driver.h.
#include "io/driver.h"

namespace geomx::io {

Report Driver::report() const {
  Report report;
  report.datagrams = datagrams_.counts();
  report.lost_messages = lost_messages_;
  report.refused_callers = sessions_.refused();
  report.held_bytes_max = delayed_bytes_max_;
  report.spans_dropped = trace_.dropped();
  report.paced_pushes = paced_pushes_;
  report.behind = behind_;
  if (!node_) return report;
  report.node = node_->stats();
  report.rounds = Rounds();
  report.handled = handled_;
  for (const auto& [peer, outlet] : outlets_) {
    LinkCounts counts = outlet.counts;
    if (shaper_) counts.busy += shaper_->Busy(peer);
    const std::string& name = node_->FindPeer(peer)->name;
    report.links[name] = counts;
    const Session* session = sessions_.Find(peer);
    report.states[name] = {.connected = session != nullptr,
                           .connections = sessions_.Connections(peer),
                           .silent = session == nullptr ? 0 : Now() - session->heard,
                           .queued_bytes = node_->QueuedBytes(peer),
                           .suspect = node_->Suspects(peer),
                           .suspicions = node_->Suspicions(peer)};
  }
  return report;
}

std::optional<RoundReport> Driver::Rounds() const {
  const RoundTimes* times = node_->times();
  if (times == nullptr) return std::nullopt;
  const Time now = Now();
  const bool global = node_->config().role == Role::kGlobalServer;
  RoundReport report;
  report.phases["compute"] = times->SecondsIn(RoundPhase::kCompute, now);
  report.phases["gather"] = times->SecondsIn(RoundPhase::kGather, now);
  if (!global) report.phases["answer"] = times->SecondsIn(RoundPhase::kAnswer, now);
  const std::vector<RoundTimes::Child> children = times->Children(now);
  for (std::size_t i = 0; i < children.size(); ++i) {
    const Peer* child = node_->FindPeer(node_->config().children[i]);
    if (child != nullptr) report.children[child->name] = children[i];
  }
  return report;
}

}  // namespace geomx::io
