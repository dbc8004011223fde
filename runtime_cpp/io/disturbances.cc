// Disturbances of connections for scenarios: cuts and resets, applied at both ends. Recovery is the
// protocol's.
#include <sys/socket.h>

#include <vector>

#include "io/sessions.h"

namespace geomx::io {

// Both ends of a path are cut at the same time, each by its own process. Calls under way get no
// answer; connections stay open, and continue if neither end has given them up by then.
void Sessions::Cut(NodeId peer) {
  const auto [outage, first] = cuts_.try_emplace(peer);
  if (outage->second.cuts++ == 0) outage->second.since = Now();
  outage->second.until = kNever;
  if (!first) return;
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

void Sessions::Heal(NodeId peer, Time round_trip) {
  const auto found = cuts_.find(peer);
  if (found == cuts_.end() || found->second.cuts == 0 || --found->second.cuts > 0) return;
  const Time now = Now(), lasted = now - found->second.since;
  const bool open = Find(peer) != nullptr;  // otherwise calls decide when traffic passes
  found->second.until = now + (open ? SilenceAfterCut(lasted, limits_.redial, round_trip) : 0);
}

void Sessions::TickCuts(Time now) {
  for (auto each = cuts_.begin(); each != cuts_.end();) {
    const auto [peer, outage] = *each;
    if (outage.until > now) {
      ++each;
      continue;
    }
    each = cuts_.erase(each);
    for (const auto& [id, session] : sessions_) {
      if (session->peer != peer || session->closed) continue;
      Watch(*session);
      ReadAgain(*session);
    }
    if (Session* open = Find(peer)) handler_.OnWritable(*open);
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
