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
  const auto key = static_cast<Key>(check::Between(random_, 0, experiment_.tensors.size() - 1));
  const auto& shards = experiment_.tensors[key].shards;
  const auto index = static_cast<std::uint32_t>(check::Between(random_, 0, shards.size() - 1));
  const auto updated = outcome_.history.updated.find({global, key, index});
  if (layout_.globals[shards[index].server] != global || updated == outcome_.history.updated.end()) return;
  const Round open = updated->second.back().second + 1;
  const bool again = outcome_.history.taken.contains({global, party, key, index, open});
  const Round round = again ? open : static_cast<Round>(check::Between(random_, 1, open - 1));
  forged_ = {global, party};
  Forge(global, Forgery(Kind::kPush, party, round, key, shards[index], index));
  if (std::exchange(forged_, std::nullopt)) Fail(global, "takes a forged push of round " + std::to_string(round));
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
