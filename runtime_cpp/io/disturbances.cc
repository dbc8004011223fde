// Disturbances of connections for scenarios: cuts and resets, applied at both ends. Recovery is the
// protocol's.
#include <sys/socket.h>

#include <vector>

#include "io/sessions.h"

namespace geomx::io {

// Both ends of a path are cut at the same time, each by its own process. Calls under way get no
// answer; connections stay open, and continue if neither end has given them up before Heal.
void Sessions::Cut(NodeId peer) {
  if (++cuts_[peer] > 1) return;
  std::vector<Session*> calls;
  for (const auto& [id, session] : sessions_) {
    if (session->peer != peer || session->closed) continue;
    again_.erase(id);
    const bool calls_it = session->state == Session::State::kConnecting ||
                          session->state == Session::State::kGreeting;
    if (calls_it) calls.push_back(session.get());
    if (!calls_it) Watch(*session);
  }
  for (Session* call : calls) Failed(*call, "no answer");
}

void Sessions::Heal(NodeId peer) {
  const auto found = cuts_.find(peer);
  if (found == cuts_.end() || --found->second > 0) return;
  cuts_.erase(found);
  for (const auto& [id, session] : sessions_) {
    if (session->peer != peer || session->closed) continue;
    Watch(*session);
    ReadAgain(*session);
  }
}

void Sessions::Reset(NodeId peer) {
  Session* session = Find(peer);
  if (session == nullptr || IsCut(peer)) return;
  const linger at_once{.l_onoff = 1, .l_linger = 0};  // closing then sends RST
  setsockopt(session->fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  Close(*session, "connection reset");
}

}  // namespace geomx::io
