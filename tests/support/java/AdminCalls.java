import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeConsumerGroupsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaFilter;

/**
 * The calls of the Java admin client that AKHQ and Kafbat make, each by name with what came of it: "answered", or the
 * class of the error. The topic has two partitions with records, the group committed offsets there and has no members.
 */
final class AdminCalls {
    private AdminCalls() { }

    static Map<String, Object> results(Admin admin, String topic, String group) {
        Map<String, Object> results = new LinkedHashMap<>();
        calls(admin, topic, group).forEach((name, call) -> results.put(name, outcome(call)));
        return results;
    }

    private static Object outcome(Callable<?> call) {
        try {
            Object told = call.call();
            return told == Boolean.FALSE ? "answered with nothing" : "answered";
        } catch (ExecutionException refused) {
            return refused.getCause().getClass().getSimpleName();
        } catch (Exception failed) {
            return failed.toString();
        }
    }

    private static Map<String, Callable<?>> calls(Admin admin, String topic, String group) {
        Map<String, Callable<?>> calls = new LinkedHashMap<>();
        cluster(calls, admin);
        topics(calls, admin, topic);
        configs(calls, admin, topic);
        groups(calls, admin, topic, group);
        security(calls, admin);
        changes(calls, admin, topic, group);
        return calls;
    }

    private static void cluster(Map<String, Callable<?>> calls, Admin admin) {
        calls.put("describeCluster", () -> !admin.describeCluster().nodes().get().isEmpty());
        calls.put("describeCluster with authorized operations", () ->
            admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true)).authorizedOperations().get());
        calls.put("describeFeatures", () -> admin.describeFeatures().featureMetadata().get());
        calls.put("describeMetadataQuorum", () -> admin.describeMetadataQuorum().quorumInfo().get());
        calls.put("describeLogDirs", () -> admin.describeLogDirs(nodes(admin)).allDescriptions().get().values().stream()
            .anyMatch(directories -> directories.values().stream().anyMatch(each -> !each.replicaInfos().isEmpty())));
        calls.put("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments().get());
        calls.put("listTransactions", () -> admin.listTransactions().all().get());
        calls.put("describeTransactions", () ->
            admin.describeTransactions(List.of("nobody")).description("nobody").get());
    }

    private static void topics(Map<String, Callable<?>> calls, Admin admin, String topic) {
        List<TopicPartition> places = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
        calls.put("listTopics", () ->
            admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get().contains(topic));
        calls.put("describeTopics", () ->
            admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size() == 2);
        calls.put("describeTopics with authorized operations", () -> admin.describeTopics(
            List.of(topic), new DescribeTopicsOptions().includeAuthorizedOperations(true)).allTopicNames().get());
        calls.put("describeTopics by id", () -> admin.describeTopics(TopicCollection.ofTopicIds(List.of(
            admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).topicId()))).allTopicIds().get());
        Map.of("earliest", OffsetSpec.earliest(), "latest", OffsetSpec.latest(), "of the newest record",
            OffsetSpec.maxTimestamp(), "of a time", OffsetSpec.forTimestamp(0)).forEach((name, spec) ->
                calls.put("listOffsets " + name, () ->
                    admin.listOffsets(places.stream().collect(Collectors.toMap(place -> place, place -> spec))).all().get()));
        calls.put("describeProducers", () -> admin.describeProducers(places).all().get());
    }

    private static void configs(Map<String, Callable<?>> calls, Admin admin, String topic) {
        DescribeConfigsOptions whole = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        ConfigResource ofTopic = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        calls.put("describeConfigs of a topic", () ->
            !admin.describeConfigs(List.of(ofTopic), whole).all().get().get(ofTopic).entries().isEmpty());
        calls.put("describeConfigs of the brokers", () -> {
            List<ConfigResource> brokers = nodes(admin).stream()
                .map(node -> new ConfigResource(ConfigResource.Type.BROKER, node.toString())).collect(Collectors.toList());
            return admin.describeConfigs(brokers, whole).all().get().values().stream().noneMatch(each -> each.entries().isEmpty());
        });
        calls.put("incrementalAlterConfigs", () -> admin.incrementalAlterConfigs(Map.of(ofTopic, List.of(
            new AlterConfigOp(new ConfigEntry("retention.ms", "7200000"), AlterConfigOp.OpType.SET)))).all().get());
    }

    private static void groups(Map<String, Callable<?>> calls, Admin admin, String topic, String group) {
        calls.put("listConsumerGroups", () ->
            admin.listConsumerGroups().all().get().stream().anyMatch(each -> each.groupId().equals(group)));
        calls.put("describeConsumerGroups", () -> admin.describeConsumerGroups(
            List.of(group), new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true)).all().get());
        calls.put("listConsumerGroupOffsets", () ->
            !admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().isEmpty());
        calls.put("listConsumerGroupOffsets of several groups", () -> admin.listConsumerGroupOffsets(Map.of(
            group, new ListConsumerGroupOffsetsSpec(), "nobody", new ListConsumerGroupOffsetsSpec())).all().get());
    }

    private static void security(Map<String, Callable<?>> calls, Admin admin) {
        calls.put("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
        calls.put("describeClientQuotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get());
        calls.put("describeUserScramCredentials", () -> admin.describeUserScramCredentials().all().get());
        calls.put("describeDelegationToken", () -> admin.describeDelegationToken().delegationTokens().get());
    }

    /** What their buttons do; the last, since it takes the group away. */
    private static void changes(Map<String, Callable<?>> calls, Admin admin, String topic, String group) {
        TopicPartition first = new TopicPartition(topic, 0);
        calls.put("deleteRecords", () -> admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(1))).all().get());
        calls.put("electLeaders", () ->
            admin.electLeaders(ElectionType.PREFERRED, new HashSet<>(List.of(first))).partitions().get());
        calls.put("alterConsumerGroupOffsets", () ->
            admin.alterConsumerGroupOffsets(group, Map.of(first, new OffsetAndMetadata(1))).all().get());
        calls.put("deleteConsumerGroupOffsets", () ->
            admin.deleteConsumerGroupOffsets(group, new HashSet<>(List.of(first))).all().get());
        calls.put("deleteConsumerGroups", () -> admin.deleteConsumerGroups(List.of(group)).all().get());
    }

    private static List<Integer> nodes(Admin admin) throws Exception {
        return admin.describeCluster().nodes().get().stream().map(node -> node.id()).collect(Collectors.toList());
    }
}
