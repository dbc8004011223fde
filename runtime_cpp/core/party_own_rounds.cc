// A local server whose workers do not wait for each other: every worker's push changes the party's model and is
// answered by itself, at once.
//
// The policy keeps the model and says when something goes to the global servers. One push of a shard is
// under way at a time: while its answer is due, the party continues, and sends what has come up since
// when the answer is there. A worker's last push is answered when no worker will push again and the global
// server has answered the party's last one. Nothing is then left behind at the party when its workers
// leave, and they end with the same value.
#include <optional>
#include <utility>
#include <vector>

#include "core/server.h"

namespace geomx {

bool Server::IsTold(const Header& header) const {
  const GlobalRounds& rounds = node_.config().rounds;
  const bool steps = header.kind == Kind::kPush ? rounds.step_first : rounds.update_at_party;
  if (!steps || (header.flags & kPlain) != 0 || header.server >= node_.config().parents.size()) return true;
  const auto found = optimizers_.find(node_.config().parents[header.server]);
  return found != optimizers_.end() && found->second.has_value();
}

void Server::Apply(NodeId peer, const Header& header, Shard& shard, Buffer encoded, Time now) {
  if (shard.value == nullptr) return node_.Fail(peer, "push before the initial value was asked for");
  Progress& worker = shard.workers[peer];
  if (header.round != worker.round + 1 || worker.last) return FailRound(peer, header, worker.round + 1);
  if (!IsAcceptable(peer, header, shard, encoded)) return;
  node_.work().update.Add(std::uint64_t{header.shard_elements} * sizeof(float));
  auto value = std::make_shared<Buffer>(node_.sums().Decoded(header, std::move(encoded)));
  ++worker.round;
  ++node_.counts().rounds;
  shard.present = shard.present || (header.flags & kAbsent) == 0;
  policy_->Update({shard.terms.info, peer, worker.round}, *value);
  if ((header.flags & kLast) != 0) {
    worker.last = header;
  } else {
    SendResult(header, worker.round, node_.config().quorum, value, {&peer, 1}, now);
  }
  SendMove(shard, now);
}

void Server::SendMove(Shard& shard, Time now) {
  if (shard.escalated || shard.last || shard.workers.empty()) return;
  const bool ends = Unfinished(shard).empty();
  std::optional<std::vector<float>> move = policy_->Send(shard.terms.info, ends);
  if (!move) return;
  const NodeId parent = node_.config().parents[shard.terms.info.server];
  shard.last = ends;
  shard.escalated = true;
  times_.Move(shard.phase, RoundPhase::kAnswer, now);
  shard.parent = parent;
  Header header = ShardHeader(Kind::kPush, shard.terms.info);
  header.flags = static_cast<std::uint8_t>((std::exchange(shard.present, false) ? 0 : kAbsent) | (ends ? kLast : 0));
  header.merge_count = node_.config().quorum;
  header.round = ++shard.global_round;
  const auto sent = std::make_shared<const std::vector<float>>(std::move(*move));
  node_.Send({&parent, 1}, {header, sent->empty() ? nullptr : sent->data(), sent}, now);
}

void Server::Merge(Shard& shard, Buffer value, Time now) {
  policy_->Answer(shard.terms.info, value);
  NoteNext(shard, now);
  if (!shard.last) return SendMove(shard, now);
  const auto answer = std::make_shared<const Buffer>(std::move(value));
  for (const auto& [worker, progress] : shard.workers) {
    if (!progress.last) continue;  // it has left without saying which push was its last
    SendResult(*progress.last, progress.round, node_.config().quorum, answer, {&worker, 1}, now);
  }
}

std::vector<NodeId> Server::Unfinished(const Shard& shard) const {
  std::vector<NodeId> unfinished = node_.config().children;
  std::erase_if(unfinished, [&](NodeId child) {
    const auto found = shard.workers.find(child);
    return left().contains(child) || (found != shard.workers.end() && found->second.last.has_value());
  });
  return unfinished;
}

}  // namespace geomx
