import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.Map;

/** Writes maps, collections, texts, numbers and bytes (as base64) as JSON; the older client brings no library for it. */
final class Json {
    private Json() { }

    static String of(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof byte[]) {
            return text(Base64.getEncoder().encodeToString((byte[]) value));
        }
        List<String> parts = new ArrayList<>();
        if (value instanceof Map) {
            ((Map<?, ?>) value).forEach((key, each) -> parts.add(text(key.toString()) + ": " + of(each)));
            return "{" + String.join(", ", parts) + "}";
        }
        if (value instanceof Collection) {
            ((Collection<?>) value).forEach(each -> parts.add(of(each)));
            return "[" + String.join(", ", parts) + "]";
        }
        return text(value.toString());
    }

    private static String text(String value) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char each : value.toCharArray()) {
            if (each == '"' || each == '\\') {
                quoted.append('\\').append(each);
            } else if (each < ' ') {
                quoted.append(String.format("\\u%04x", (int) each));
            } else {
                quoted.append(each);
            }
        }
        return quoted.append('"').toString();
    }
}
