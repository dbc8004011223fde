#include "core/role.h"

#include <stdexcept>

#include "core/node.h"
#include "core/worker.h"

namespace geomx {

std::unique_ptr<RoleLogic> MakeRole(Node& node) {
  switch (node.config().role) {
    case Role::kWorker: return std::make_unique<Worker>(node);
    case Role::kServer: return MakeServer(node);
    case Role::kGlobalServer: return MakeGlobalServer(node);
    case Role::kScheduler: return MakeScheduler(node);
    case Role::kStandby: return MakeStandby(node);
  }
  throw std::invalid_argument("no such role");
}

void RoleLogic::OnLinkDown(NodeId peer, const std::string& reason, Time now) {
  (void)now;
  const Peer* lost = node_.FindPeer(peer);
  if (lost == nullptr) return;
  if (node_.config().scheduler == peer) {
    node_.Emit({.kind = Event::Kind::kDead, .text = lost->name, .reason = reason});
    return;
  }
  const Round link = reason.starts_with(kBrokeProtocol) ? 0 : kLinkEnded;
  Message report = ControlMessage(Kind::kDead, {lost->name, reason}, link);
  report.header.key = node_.Incarnation(peer);
  node_.Send(*node_.config().scheduler, std::move(report));
}

}  // namespace geomx
