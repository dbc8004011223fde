// What hostile members send: transfers of rounds that have completed, or that contain their contribution. The
// receiver must refuse them; if they count, the weights are not those that the laws demand.
#include <algorithm>

#include "faults/world.h"
#include "tests/cluster.h"

namespace geomx::faults {
namespace {

Message Forgery(Kind kind, NodeId source, Round round, Key key, const ShardInfo& shard, std::uint32_t index) {
  Message message = check::Transfer(kind, source, round, shard.elements, 1000);
  Header& header = message.header;
  header.key = key;
  header.shard = index;
  header.server = shard.server;
  header.offset = shard.offset;
  return message;
}

}  // namespace

// A party that has come back, whose link is new, pushes before it has requested a value.
void World::ForgePush(NodeId global, NodeId party) {
  if (party < layout_.servers.front() || members_[party].trainer) return;
  struct Target {
    Key key;
    std::uint32_t index;
    Round open;
  };
  std::vector<Target> closed, open;  // open: the open round contains a push of the party
  for (const auto& [place, rounds] : outcome_.history.updated) {
    const auto& [server, key, index] = place;
    const Round next = rounds.back().second + 1;
    if (server != global) continue;
    closed.push_back({key, index, next});
    if (outcome_.history.taken.contains({global, party, key, index, next})) open.push_back({key, index, next});
  }
  if (closed.empty()) return;
  const std::vector<Target>& targets = open.empty() ? closed : open;
  const Target& target = targets[check::Between(random_, 0, targets.size() - 1)];
  const Round round = !open.empty() ? target.open : static_cast<Round>(check::Between(random_, 1, target.open - 1));
  const ShardInfo& shard = experiment_.tensors[target.key].shards[target.index];
  forged_ = {global, party};
  Forge(global, Forgery(Kind::kPush, party, round, target.key, shard, target.index));
  if (std::exchange(forged_, std::nullopt)) Fail(global, "takes a forged push of round " + std::to_string(round));
}

std::size_t World::Updates(NodeId global, const Header& header) const {
  const auto found = outcome_.history.updated.find({global, header.key, header.shard});
  return found == outcome_.history.updated.end() ? 0 : found->second.size();
}

// A party that is too far ahead, so that its push was not answered at once, pushes the next round.
void World::ForgeNext(NodeId global, NodeId party, const Header& push, std::size_t updates) {
  if (Updates(global, push) != updates || convicted_) return;
  const ShardInfo& shard = experiment_.tensors[push.key].shards[push.shard];
  forged_ = {global, party};
  Forge(global, Forgery(Kind::kPush, party, push.round + 1, push.key, shard, push.shard));
  if (std::exchange(forged_, std::nullopt)) Fail(global, "takes a push before it has answered the last one");
}

// A local server answers a push with the value of an earlier round, which is refused, or ignored as a repetition.
void World::ForgeValue(NodeId worker, const Header& push) {
  if (push.round < 2) return;
  const NodeId server = layout_.Config(worker).parents.front();
  const ShardInfo& shard = experiment_.tensors[push.key].shards[push.shard];
  forged_ = {worker, server};
  Forge(worker, Forgery(Kind::kValue, server, push.round - 1, push.key, shard, push.shard));
  forged_.reset();
}

void World::Forge(NodeId to, Message message) {
  Process& process = *members_[to].process;
  const NodeId from = message.header.source;
  if (!process.runs() || process.node()->node().IsAway(from)) return forged_.reset();
  healed_ = std::max(healed_, now());
  Note(to, "is sent a forged " + std::string(KindName(message.header.kind)) + " of node" + std::to_string(from) +
               ", round " + std::to_string(message.header.round));
  process.node()->HandleMessage(from, message, now());
  process.Follow();
}

}  // namespace geomx::faults
