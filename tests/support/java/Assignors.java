import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Scanner;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * The assignors of Kafka's broker. Each line of input is a group, as numbers between spaces:
 *
 *   0 for uniform or 1 for range, number of topics, each with its number of partitions, number of members, and
 *   for each member its instance or -1, number of topics, these, number of partitions that it has, topic and partition of each.
 *
 * Members are called m00000, m00001 and so on. The answer is a line of JSON: a list of [topic, partition] per member.
 */
public final class Assignors {
    private final Scanner words;

    private Assignors(String line) {
        words = new Scanner(line);
    }

    public static void main(String[] ignored) {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            System.out.println(Json.of(new Assignors(lines.nextLine()).assign()));
        }
    }

    private Map<String, List<List<Integer>>> assign() {
        ConsumerGroupPartitionAssignor assignor = words.nextInt() == 0 ? new UniformAssignor() : new RangeAssignor();
        Map<Uuid, Integer> counts = new HashMap<>();
        int topics = words.nextInt();
        for (int topic = 0; topic < topics; topic++) {
            counts.put(new Uuid(1, words.nextInt()), words.nextInt());
        }
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        int size = words.nextInt();
        for (int place = 0; place < size; place++) {
            String memberId = String.format("m%05d", place);
            MemberSubscriptionAndAssignmentImpl member = member();
            members.put(memberId, member);
            subscriptions.add(member.subscribedTopicIds());
            member.partitions().forEach((topic, partitions) -> partitions.forEach(
                partition -> owners.computeIfAbsent(topic, key -> new HashMap<>()).put(partition, memberId)));
        }
        SubscriptionType type =
            subscriptions.size() == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        GroupAssignment target = assignor.assign(new GroupSpecImpl(members, type, owners), describer(counts));
        Map<String, List<List<Integer>>> answer = new LinkedHashMap<>();
        members.keySet().forEach(memberId -> answer.put(memberId, partitions(target, memberId)));
        return answer;
    }

    private MemberSubscriptionAndAssignmentImpl member() {
        int instance = words.nextInt();
        Optional<String> instanceId = instance < 0 ? Optional.empty() : Optional.of("i" + instance);
        Set<Uuid> topics = new HashSet<>();
        int subscribed = words.nextInt();
        for (int each = 0; each < subscribed; each++) {
            topics.add(new Uuid(1, words.nextInt()));
        }
        Map<Uuid, Set<Integer>> had = new HashMap<>();
        int partitions = words.nextInt();
        for (int each = 0; each < partitions; each++) {
            had.computeIfAbsent(new Uuid(1, words.nextInt()), key -> new HashSet<>()).add(words.nextInt());
        }
        Assignment assignment = new Assignment(Collections.unmodifiableMap(had));
        return new MemberSubscriptionAndAssignmentImpl(Optional.empty(), instanceId, topics, assignment);
    }

    private static SubscribedTopicDescriber describer(Map<Uuid, Integer> counts) {
        return new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                return counts.getOrDefault(topic, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        };
    }

    private static List<List<Integer>> partitions(GroupAssignment target, String memberId) {
        List<List<Integer>> found = new ArrayList<>();
        if (target.members().containsKey(memberId)) {
            target.members().get(memberId).partitions().forEach((topic, partitions) -> new TreeSet<>(partitions).forEach(
                partition -> found.add(List.of((int) topic.getLeastSignificantBits(), partition))));
        }
        return found;
    }
}
