import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Base64;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Says what Java and Kafka make of certificates: each line of standard input gets one of standard output, in base64.
 * name CERTIFICATE: its subject. user RULES NAME: the user's name. `!` and the error where they refuse.
 */
public final class Principals {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII), 1 << 16);
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            String answer = words[0].equals("name") ? name(bytes(words[1])) : user(text(words[1]), text(words[2]));
            answers.print(Base64.getEncoder().encodeToString(answer.getBytes(StandardCharsets.UTF_8)) + "\n");
            answers.flush();
        }
    }

    private static String name(byte[] certificate) {
        try {
            CertificateFactory factory = CertificateFactory.getInstance("X.509");
            X509Certificate read = (X509Certificate) factory.generateCertificate(new ByteArrayInputStream(certificate));
            return read.getSubjectX500Principal().getName();
        } catch (Exception refused) {
            return "!" + refused;
        }
    }

    private static String user(String rules, String name) {
        try {
            return SslPrincipalMapper.fromRules(rules).getName(name);
        } catch (Exception refused) {
            return "!" + refused.getClass().getSimpleName();
        }
    }

    private static byte[] bytes(String word) {
        return Base64.getDecoder().decode(word);
    }

    private static String text(String word) {
        return new String(bytes(word), StandardCharsets.UTF_8);
    }
}
