#include "core/member_change.h"

#include <utility>
#include <vector>

namespace geomx {

Message Pack(const MemberChange& change) {
  Message message = ControlMessage(Kind::kMembers, {change.name, change.reason, change.address},
                                   change.epoch);
  message.header.key = change.incarnation;
  message.header.shard = change.who;
  message.header.merge_count = change.moved ? 2 : change.back ? 1 : 0;
  return message;
}

std::optional<MemberChange> UnpackMemberChange(const Message& message) {
  std::vector<std::byte> scratch;
  auto words = UnpackStrings(message.payload.Contiguous(scratch), 3);
  if (!words) return std::nullopt;
  const Header& header = message.header;
  return MemberChange{.epoch = header.round,
                      .who = header.shard,
                      .back = header.merge_count > 0,
                      .moved = header.merge_count == 2,
                      .incarnation = header.key,
                      .name = std::move((*words)[0]),
                      .reason = std::move((*words)[1]),
                      .address = std::move((*words)[2])};
}

}  // namespace geomx
